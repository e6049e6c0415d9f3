"""What pages and pictures look like: colours for light and dark, in one place."""

from penstock.reports.pipeline import STYLE as _PIPELINE

SERIES = 7
"""How many stages have a colour of their own: the slowest ones. All others are grey."""

_LIGHT = """
--page:#f7f7f5;--card:#ffffff;--ink:#1c1c1a;--muted:#67665f;--line:#dcdbd5;--bad:#c9302c;--badbg:#fdf0ee;--good:#1a7f4b;
--goodbg:#edf7f1;--c0:#2a78d6;--c1:#e08a00;--c2:#149a6a;--c3:#8a4fc4;--c4:#d8487f;--c5:#5b8a00;--c6:#0097b2;--c7:#9b9a92;
--wait:#c9c8c0;--grid:#efeeea
"""
_DARK = """
--page:#161616;--card:#1f1f1e;--ink:#ecebe6;--muted:#a3a299;--line:#3a3a37;--bad:#f0736c;--badbg:#2f1d1b;--good:#5cc48d;
--goodbg:#17291f;--c0:#5598ea;--c1:#e3a033;--c2:#35b585;--c3:#b187e8;--c4:#ec7aa6;--c5:#94bf3a;--c6:#3cbdd4;--c7:#7d7c75;
--wait:#56554f;--grid:#2d2d2b
"""

COLORS = f""".pst{{{_LIGHT.replace(chr(10), "")};color-scheme:light}}
@media (prefers-color-scheme:dark){{.pst{{{_DARK.replace(chr(10), "")};color-scheme:dark}}}}
"""
"""Variables that hold the colours of everything inside class "pst"."""

STYLE = (
    COLORS
    + """.pst{font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--ink);
background:var(--page);box-sizing:border-box;text-align:left}
.pst *{box-sizing:border-box}
.pst-in{max-width:1180px;margin:0 auto;padding:20px 16px 40px}
.pst-part{display:inline-block;max-width:100%;border-radius:8px}
.pst-small{padding:12px;border:1px solid var(--line);border-radius:8px;overflow-x:auto;max-width:1180px}
.pst h1{font-size:20px;margin:0 0 2px;font-weight:650}
.pst h2{font-size:15px;margin:26px 0 8px;font-weight:650}
.pst p{margin:0 0 8px}
.pst .muted{color:var(--muted)}
.pst .say{border-left:4px solid var(--c0);background:var(--card);padding:10px 14px;border-radius:0 6px 6px 0;
margin:14px 0;overflow-wrap:anywhere}
.pst .say.bad{border-color:var(--bad);background:var(--badbg)}
.pst .say.good{border-color:var(--good);background:var(--goodbg)}
.pst .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(148px,1fr));gap:10px;margin:14px 0}
.pst .tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 12px}
.pst .tile b{display:block;font-size:20px;font-weight:650;line-height:1.2}
.pst .tile span{color:var(--muted);font-size:12.5px}
.pst .plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}
.pst figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 12px}
.pst figcaption{font-weight:600;font-size:13px}
.pst figcaption span{font-weight:400;color:var(--muted)}
.pst .plot{position:relative;height:132px;margin:8px 0 0 56px;border-bottom:1px solid var(--line)}
.pst .plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.pst .plot i{position:absolute;right:100%;margin-right:6px;transform:translateY(-50%);font-style:normal;
font-size:11px;color:var(--muted);white-space:nowrap}
.pst .times{display:flex;justify-content:space-between;margin:3px 0 0 56px;font-size:11px;color:var(--muted)}
.pst .keys{display:flex;flex-wrap:wrap;gap:4px 14px;margin-top:6px;font-size:12px;color:var(--muted)}
.pst .keys i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
.pst .lanes{display:grid;grid-template-columns:minmax(64px,min(230px,30%)) 1fr;gap:3px 10px;
align-items:center;font-size:12px}
.pst .lanes .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.pst .lanes svg{width:100%;height:18px;display:block;background:var(--grid);border-radius:3px}
.pst .lanes svg.tall{height:auto}
.pst .scroll{overflow-x:auto}
.pst table{border-collapse:collapse;width:100%;font-size:13px;background:var(--card)}
.pst th{font-weight:600;color:var(--muted);text-align:left;white-space:nowrap}
.pst th,.pst td{padding:5px 10px;border-bottom:1px solid var(--line);vertical-align:top}
.pst td.num,.pst th.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.pst td.call{overflow-wrap:anywhere;min-width:140px}
.pst td.thumb img,.pst td.thumb svg{display:block}
.pst ul{margin:0;padding-left:18px}
.pst li{overflow-wrap:anywhere;margin-bottom:3px}
.pst pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border:1px solid var(--line);
border-radius:6px;padding:8px 10px;font-size:12px;margin:0 0 8px;color:var(--ink)}
.pst pre.plan{border:0;padding:0;background:none;margin:10px 0 0}
@media (max-width:600px){.pst .wide{display:none}.pst th,.pst td{padding:5px 6px}
.pst .plot,.pst .times{margin-left:50px}}
"""
    + _PIPELINE
)


def page(title: str, body: str) -> str:
    """Return a whole page, which needs nothing from anywhere else."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>html,body{{margin:0}}\n{STYLE}"
        'body{min-height:100vh}</style></head><body class="pst">'
        f'<div class="pst-in">{body}</div></body></html>\n'
    )


def fragment(body: str) -> str:
    """Return a part of a page, such as a notebook's."""
    return (
        f'<div class="pst pst-part"><style>{STYLE}</style><div class="pst-small">{body}</div></div>'
    )

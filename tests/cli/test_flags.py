"""Messages of the library speak of flags."""

import pytest

from penstock.cli.flags import flag_words, one_line


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Write with_options(memory=5), or more", "Give --memory 5, or more"),
        ("Choose among them with fields=(...).", "Choose among them with --fields A,B."),
        ("from_files(..., on_error='skip') skips files", "--skip-bad skips files"),
        ("skip such records with on_error='skip'.", "skip such records with --skip-bad."),
        ("from_files(..., verify=False) reads it as it is.", "--no-verify reads it as it is."),
        ("give them one size: size=(3, 4).", "give them one size: --size 3,4."),
        ("a list. Write ps.SequenceFeature for it.", "a list. Give --feature 'NAME=sequence:float32[3]'."),
        (
            "Write ps.FixedFeature or ps.VarFeature for it.",
            "Give --feature NAME=int64, or NAME=int64[?].",
        ),
        ("Give features={...}, or raw=True for bytes.", "Say what is in them: --feature NAME=int64; or --raw."),
        ("Write from_tfrecord(..., index=False) to read", "Give --no-index to read"),
        ("a larger window: .shuffle(window='1GB')", "a larger window: --window 1GB"),
        ("by way of scratch files: .shuffle(exact=True)", "by way of scratch files: --exact"),
        ("stored anew: .cache('folder').shuffle()", "stored anew: --cache FOLDER"),
        ("where: format='csv'", "where: --format 'csv'"),
        ("format must be one of npy, npz, tar.", "--format must be one of npy, npz, tar, tfrecord."),
        ("decimal=',' reads them, and decimal='.' leaves", "--decimal , reads them, and --decimal . leaves"),
        ("for public data, storage_options={'anon': True}.", "for public data, --storage-options '{\"anon\": true}'."),
        ("storage_options={'client_kwargs': {'region_name': ...}}.",
         "--storage-options '{\"client_kwargs\": {\"region_name\": \"...\"}}'."),
        ('float16; map it to float32, or write format="npy", which holds every dtype.',
         ("float16; in Python, map it to float32, or write a folder of .npy shards (a name without an ending), which "
          "holds every dtype.")),
        ('write format="npy", which holds any row, or change it first with map.',
         "write a folder of .npy shards (a name without an ending), which holds any row."),
        ("field 'a' is ArraySpec((None, 3), uint8), and", "field 'a' is uint8 (?, 3), and"),
        ("Name a plain file; to read a stream, use from_generator.", "Name a plain file."),
        ("the dataset has no batches; check take, skip, filter and the files.", "the files have no rows."),
        ("scratch must be a folder that exists", "--scratch must be a folder that exists"),
    ],
)  # fmt: skip
def test_arguments_are_flags(message, words):
    assert flag_words(message) == words


def test_a_command_has_its_own_words_for_formats_and_fields():
    assert (
        flag_words("give format='npy'", format_flag="--source-format")
        == "give --source-format 'npy'"
    )
    assert flag_words("with fields=(...)", fields_flag="--x and --y") == "with --x and --y"


def test_lines_are_joined_and_code_is_left_out():
    assert one_line("a rule\n  that goes on.\n  wrong: x\n  right: y") == "a rule that goes on."

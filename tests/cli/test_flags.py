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
        ("Give features={...}, or raw=True for bytes.", "Say what is in them: --feature NAME=int64; or --raw."),
        ("Write from_tfrecord(..., index=False) to read", "Give --no-index to read"),
        ("a larger window: .shuffle(window='1GB')", "a larger window: --window 1GB"),
        ("by way of scratch files: .shuffle(exact=True)", "by way of scratch files: --exact"),
        ("stored anew: .cache('folder').shuffle()", "stored anew: --cache FOLDER"),
        ("where: format='csv'", "where: --format 'csv'"),
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

"""asking_keras: Keras' training code is told from everybody else."""

import pytest

from penstock.core.askers import asking_keras


class Asked:
    @property
    def kind(self):
        return asking_keras()


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("keras.src.trainers.data_adapters", "keras"),
        ("tf_keras.src.engine.data_adapter", "tf_keras"),
        ("keras.src.saving.saving_lib", ""),
        ("keras_like.src.trainers.x", ""),
        ("__main__", ""),
    ],
)
def test_only_the_training_code_of_keras_is_seen(module, wanted):
    names = {"__name__": module, "asked": Asked()}
    exec("found = asked.kind", names)
    assert names["found"] == wanted


def test_a_frame_further_up_does_not_count():
    names = {"__name__": "keras.src.trainers.trainer", "ask": lambda: Asked().kind}
    exec("found = ask()", names)
    assert names["found"] == ""

"""Train with Hugging Face's Trainer, and go on in mid-epoch after a kill.

    python examples/hugging_face_trainer.py run/

Kill it at any moment and start it again: it goes on with the batch after the last checkpoint, and ends with the weights
of a run that was never killed. A feed is given by `get_train_dataloader`. Trainer counts steps, and asks the feed for
the epoch and the batch that follow from them: no batch before that one is read again.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import penstock as ps

EPOCHS, EVERY = 3, 5
folder = Path(sys.argv[1])

x = np.random.default_rng(0).random((1001, 8), np.float32)
# Trainer calls the model with the fields of a batch by their names.
rows = ps.from_arrays({"inputs": x, "labels": x.sum(axis=1) + 0.1})
feed = rows.shuffle(seed=7).batch(48).to_torch()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Linear(8, 4), torch.nn.Dropout(0.1), torch.nn.Linear(4, 1)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, inputs, labels):
        outputs = self.layers(inputs)[:, 0]
        return {"loss": ((outputs - labels) ** 2).mean(), "logits": outputs}


class FeedTrainer(Trainer):
    def get_train_dataloader(self):
        return feed

    def training_step(self, model, inputs, num_items_in_batch=None):
        print(f"step {self.state.global_step}", flush=True)
        return super().training_step(model, inputs, num_items_in_batch)


torch.manual_seed(0)
model = Model()
arguments = TrainingArguments(
    str(folder),
    num_train_epochs=EPOCHS,
    save_steps=EVERY,
    save_total_limit=2,
    learning_rate=0.01,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
)
last = get_last_checkpoint(str(folder)) if folder.exists() else None
trainer = FeedTrainer(model, arguments)
trainer.train(resume_from_checkpoint=last)
torch.save(model.state_dict(), folder / "weights.pt")
print(f"trained for {trainer.state.global_step} steps")

"""bucket_by_sequence_length: rows of about the same length, in padded batches."""

from penstock.stages.bucket_by_sequence_length.lengths import Lengths
from penstock.stages.bucket_by_sequence_length.stage import BucketBySequenceLength

__all__ = ["BucketBySequenceLength", "Lengths"]

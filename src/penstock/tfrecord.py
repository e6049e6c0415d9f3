"""Single records: `ps.tfrecord.encode_example` and `ps.tfrecord.decode_example`."""

from penstock.sources.tfrecord.codec import decode_example, encode_example, infer_features

__all__ = ["decode_example", "encode_example", "infer_features"]

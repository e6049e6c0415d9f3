"""Single records: `ps.tfrecord.encode_example`, `ps.tfrecord.decode_example`, `ps.tfrecord.infer_features`."""

from penstock.sources.tfrecord.codec import decode_example, encode_example, infer_features

__all__ = ["decode_example", "encode_example", "infer_features"]

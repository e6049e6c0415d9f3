"""TFRecord files of tf.train.Examples, without TensorFlow."""

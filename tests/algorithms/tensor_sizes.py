"""Finds the static shapes of everything in a TFF computation."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def known_elements(shape) -> int:
  """Returns the product of the sizes that are known."""
  return int(np.prod([size for size in shape if size is not None]))


def static_shapes(computation) -> set:
  """Returns the shapes in all types and TensorFlow graphs, `None` unknown."""
  proto = tff.framework.serialize_computation(computation)
  shapes = set()
  _walk(proto, shapes)
  return shapes


def _walk(message, shapes):
  """Visits a message of any kind and all that it is made of."""
  name = message.DESCRIPTOR.name
  if name == 'TensorFlow':
    graph_def = tf.compat.v1.GraphDef()
    message.graph_def.Unpack(graph_def)
    _graph_shapes(graph_def, shapes)
  elif name == 'TensorType':
    shapes.add(tuple(None if size < 0 else size for size in message.dims))
  for field, value in message.ListFields():
    if field.message_type is None:
      continue
    values = value if field.label == field.LABEL_REPEATED else [value]
    for child in values:
      _walk(child, shapes)


def _graph_shapes(graph_def, shapes):
  with tf.Graph().as_default() as graph:
    tf.graph_util.import_graph_def(graph_def, name='')
    graphs = [graph]
    for function_def in graph_def.library.function:
      # The gradient of a function is not needed for its shapes.
      name = function_def.signature.name
      function = graph._functions.get(name)  # pylint: disable=protected-access
      inner = getattr(function, 'graph', None)
      if inner is None:
        inner = _function_graph(function_def)
      graphs.append(inner)
    for one in graphs:
      for operation in one.get_operations():
        for tensor in operation.outputs:
          if tensor.shape.rank is not None:
            shapes.add(tuple(tensor.shape.as_list()))


def _function_graph(function_def):
  from tensorflow.python.framework import function_def_to_graph

  return function_def_to_graph.function_def_to_graph(function_def)

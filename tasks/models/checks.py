"""Checks of arguments that all models share."""

from fedsteer_tff import arguments


def check_arguments(
  name: str,
  input_shape: tuple[int, int, int],
  num_classes: int,
  smallest: int = 1,
) -> None:
  """Checks what a model is built for.

  Args:
    name: The model's name, for the message.
    input_shape: (height, width, channels).
    num_classes: Number of logits.
    smallest: The least height and width.

  Raises:
    TypeError: If `num_classes` is no integer.
    ValueError: If the images are too small, or there are no classes.
  """
  if min(input_shape[:2]) < smallest:
    raise ValueError(
      f'model {name} must get images of at least {smallest}x{smallest}, found'
      f' {input_shape[0]}x{input_shape[1]}'
    )
  arguments.check_integer('num_classes', num_classes, 1)

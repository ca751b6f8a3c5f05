"""What single clients show, and what the server keeps, as docs/privacy.md says.

The client's side of a MapReduceForm is the exact code that makes an upload. It
runs here on one client, so that the open part and the part that goes into a
secure sum can be looked into.
"""

import collections
import functools
import pathlib

import numpy as np
import pytest
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import participation
from fedsteer_tff import programs
from fedsteer_tff import subspace
from tests.aggregators import small_rounds

_N, _DIMENSION, _K, _WIDTH = 6, 40, 2, 16
_WEIGHT, _PROBABILITY = np.float32(0.125), np.float32(0.25)
_BOUND = 64.0
_CORRECTIONS = {
  'plain sum': lambda: None,
  'secure sum': lambda: tff.aggregators.SecureSumFactory(_BOUND),
}
_CORE, _OTHER = 1, 4
_COLUMNS = (
  'whole update',
  'coordinates',
  'norm',
  'sketch',
  'update of a core client',
)


@pytest.fixture(name='simulation', scope='module', autouse=True)
def _simulation():
  with programs.LocalRuntime(simulate_secure_sums=True).activate():
    yield


def _process(**parameters):
  factory = aggregators.FedSteerFactory(
    _N,
    **{'core_set_size': _K, 'sketch_size': _WIDTH, **parameters},
  )
  return factory.create(
    small_rounds.value_type([tff.TensorType(np.float32, [_DIMENSION])]),
    small_rounds.WEIGHT_TYPE,
  )


def _update(client_id, seed=0):
  rng = np.random.default_rng([seed, client_id])
  return np.float32(rng.normal(size=_DIMENSION))


def _item(client_id, update):
  return collections.OrderedDict(
    value=collections.OrderedDict(
      update=[np.float32(update)],
      client_id=np.int32(client_id),
      participation_probability=_PROBABILITY,
    ),
    weight=_WEIGHT,
  )


def _form(process):
  """Returns the process as a form."""
  value_type, weight_type = process.next.type_signature.parameter[1:3]
  item_type = tff.to_type(
    collections.OrderedDict(value=value_type.member, weight=weight_type.member)
  )

  @tff.federated_computation(
    process.initialize.type_signature.result,
    tff.FederatedType(item_type, tff.CLIENTS),
  )
  def run_round(state, items):
    output = process.next(state, items.value, items.weight)
    return output.state, output.result

  return tff.backends.mapreduce.get_map_reduce_form_for_computation(run_round)


def _leaves(value):
  """Yields the tensors of a structure."""
  if isinstance(value, collections.abc.Mapping):
    value = list(value.values())
  if isinstance(value, (tuple, list)):
    for child in value:
      yield from _leaves(child)
  else:
    yield np.asarray(value, float)


def _shows(value, vector):
  """Whether a tensor has this vector as a row of its last axis."""
  return any(
    any(
      np.allclose(row, vector, rtol=1e-3, atol=1e-5)
      for row in np.reshape(leaf, [-1, len(vector)])
    )
    for leaf in _leaves(value)
    if leaf.size and leaf.shape and leaf.shape[-1] == len(vector)
  )


class _Upload:
  """What a client sends in a round with a core set and sketches."""

  def __init__(self, form, state, basis, client_id):
    self.update = _update(client_id)
    self.basis = basis
    work = form.work(_item(client_id, self.update), form.prepare(state))
    self.open, self.secure = work[0], work[1:]

  def numbers(self):
    """All that is open, leaf by leaf."""
    return list(_leaves(self.open))

  def shows(self, vector):
    """Whether an open tensor has this vector as a row of its last axis."""
    return _shows(self.open, vector)

  def shows_number(self, number):
    return any(
      np.any(np.isclose(leaf, number, rtol=1e-4))
      for leaf in self.numbers()
      if leaf.size < _DIMENSION
    )


def _state_with_core_set(process):
  """Returns a state whose core set is {0, _CORE}, and the core updates."""
  state = process.initialize()
  basis = np.float32(np.random.default_rng(1).normal(size=[_K, _DIMENSION]))
  part = small_rounds.core_state(state)
  part['core_set'] = np.int32([0, _CORE])
  part['core_updates'] = basis
  if 'core_sketch' in part:
    part['core_sketch'] = np.float32(_sketch(basis))
  return state, basis


@functools.cache
def _uploads(design, correction):
  """Returns the uploads of a core client and of another one."""
  process = _process(
    aggregation=design,
    core_eligibility='frequent',
    correction_factory=_CORRECTIONS[correction](),
  )
  state, basis = _state_with_core_set(process)
  form = _form(process)
  return tuple(_Upload(form, state, basis, i) for i in (_CORE, _OTHER))


def _sketch(vectors):
  return np.asarray(subspace.sketch(np.float32(vectors), _WIDTH), float)


def _coordinates(update, basis):
  """Ridge coordinates, in float64."""
  gram = basis @ basis.T
  ridge = 0.01 * np.trace(gram) / len(gram)
  return np.linalg.solve(gram + ridge * np.eye(len(gram)), basis @ update)


def _found(design, correction):
  """Returns the row of the page's table that the uploads give."""
  core, other = _uploads(design, correction)
  update, basis = np.float64(other.update), np.float64(other.basis)
  sketch = _sketch(update[np.newaxis])[0]
  exact = _coordinates(update, basis)
  sketched = _coordinates(sketch, _sketch(basis))
  residual = _WEIGHT / _PROBABILITY * (update - exact @ basis)
  shows_coordinates = other.shows(exact) or other.shows(sketched)
  # Q is known: with the coordinates, a residual is as good as the update.
  whole = other.shows(update) or (other.shows(residual) and shows_coordinates)
  norm = other.shows_number(update @ update) or other.shows_number(
    sketch @ sketch
  )
  cells = (
    whole,
    shows_coordinates,
    norm,
    other.shows(sketch),
    core.shows(np.float64(core.update)),
  )
  return ['yes' if cell else 'no' for cell in cells]


def _page_rows():
  page = pathlib.Path(__file__).parents[2] / 'docs' / 'privacy.md'
  lines = [
    [cell.strip().strip('`') for cell in line.strip('|').split('|')]
    for line in page.read_text(encoding='utf-8').splitlines()
    if line.startswith('|')
  ]
  head = next(i for i, cells in enumerate(lines) if cells[2:] == [*_COLUMNS])
  return {
    (cells[0], cells[1]): cells[2:] for cells in lines[head + 2 : head + 10]
  }


def test_the_page_has_a_row_for_every_design_with_either_sum():
  assert set(_page_rows()) == {
    (design, correction)
    for design in aggregators.DESIGNS
    for correction in _CORRECTIONS
  }


@pytest.mark.slow
@pytest.mark.parametrize('correction', _CORRECTIONS)
@pytest.mark.parametrize('design', aggregators.DESIGNS)
def test_a_client_shows_what_the_page_says(design, correction):
  assert _page_rows()[design, correction] == _found(design, correction)


@pytest.mark.slow
@pytest.mark.parametrize('correction', _CORRECTIONS)
@pytest.mark.parametrize('design', aggregators.DESIGNS)
def test_identity_weight_and_probability_are_always_open(design, correction):
  _, upload = _uploads(design, correction)
  (report,) = upload.open
  if design == 'dense':
    np.testing.assert_array_equal(np.flatnonzero(report['count']), [_OTHER])
    weight, probability = (
      report[name][_OTHER, 0] for name in ('weight', 'probability')
    )
  else:
    report = report.get('report', report)
    assert report['client_id'] == _OTHER
    weight, probability = report['weight'], report['probability']
  assert (weight, probability) == (_WEIGHT, _PROBABILITY)


@pytest.mark.slow
@pytest.mark.parametrize('design', aggregators.DESIGNS)
def test_a_secure_sum_gets_the_vector_that_a_plain_sum_shows(design):
  _, upload = _uploads(design, 'secure sum')
  (vector,) = [
    part
    for group in upload.secure
    for part in group
    if np.shape(part) == (_DIMENSION,)
  ]
  assert vector.dtype == np.int64
  # Integers of 32 bits stand for the numbers from -bound to bound.
  step = 2 * _BOUND / (2**32 - 1)
  update, basis = np.float64(upload.update), np.float64(upload.basis)
  if design in ('client_projection', 'dense'):
    update = update - _coordinates(update, basis) @ basis
  wanted = _WEIGHT / _PROBABILITY * update
  np.testing.assert_allclose(vector * step - _BOUND, wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('eligibility', ['reporting', 'frequent', 'received'])
def test_of_a_round_the_server_gets_members_and_candidates_whole(eligibility):
  process = _process(core_eligibility=eligibility)
  state, basis = _state_with_core_set(process)
  form = _form(process)
  uploads = {i: _Upload(form, state, basis, i) for i in range(1, _N)}
  total = form.zero()
  for upload in uploads.values():
    total = form.accumulate(total, upload.open)

  def unexplained(client_id):
    sketch = _sketch(np.float64(uploads[client_id].update)[np.newaxis])[0]
    rows = _sketch(basis)
    rest = sketch - _coordinates(sketch, rows) @ rows
    return rest @ rest / (sketch @ sketch)

  # With equal weights and probabilities, that decides.
  candidates = sorted(set(uploads) - {_CORE}, key=unexplained)[-_K:]
  wanted = {_CORE, *(candidates if eligibility == 'reporting' else ())}
  assert {
    i for i, upload in uploads.items() if _shows(total, upload.update)
  } == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
  ('design', 'is_sent'),
  [(design, design != 'server_projection') for design in aggregators.DESIGNS],
)
def test_estimates_that_are_sent_tell_every_client_who_took_part(
  design, is_sent
):
  process = _process(
    core_set=(0, 1),
    aggregation=design,
    participation=participation.RunningFrequency(0.25, prior_rounds=10.0),
  )
  form = _form(process)
  before = process.initialize()
  after, _ = _rounds(process, [{i: _update(i) for i in (_CORE, _OTHER)}])
  # 0.25 of ten rounds, and the one that is about to run.
  assert _shows(form.prepare(before), np.full(_N, 3.5 / 11)) == is_sent
  took_part = np.isin(np.arange(_N), [_CORE, _OTHER])
  wanted = np.where(took_part, 4.5 / 12, 3.5 / 12)
  assert _shows(form.prepare(after), wanted) == is_sent


@pytest.mark.slow
def test_a_private_correction_gets_its_noise_from_the_server():
  norm = 0.5
  process = _process(
    core_set=(),
    aggregation='client_projection',
    correction_factory=aggregators.private_correction(100.0, norm),
  )
  upload = _Upload(
    _form(process), process.initialize(), np.zeros([0, _DIMENSION]), _OTHER
  )
  direction = upload.update / np.linalg.norm(upload.update)
  # What the client sends is clipped, and as it is beyond that.
  (vector,) = [
    leaf
    for leaf in upload.numbers()
    if leaf.shape == (_DIMENSION,) and np.any(leaf)
  ]
  np.testing.assert_allclose(vector, norm * direction, rtol=1e-5)


def _rounds(process, updates_of_rounds):
  """Returns the last state and the estimates of all rounds."""
  state, results = process.initialize(), []
  for updates in updates_of_rounds:
    items = [_item(i, update) for i, update in updates.items()]
    output = process.next(
      state, [item['value'] for item in items], [i['weight'] for i in items]
    )
    state = output.state
    results.append(output.result[0])
  return state, results


def _perpendicular(rows, seed):
  """A unit vector that has inner products of 0 with all rows."""
  vector = np.random.default_rng(seed).normal(size=rows.shape[1])
  basis = np.linalg.svd(rows, full_matrices=False)[2]
  vector -= basis.T @ (basis @ vector)
  return vector / np.linalg.norm(vector)


@pytest.mark.parametrize('design', aggregators.DESIGNS)
def test_of_others_the_server_keeps_coordinates_and_sums_alone(design):
  # Two clients outside a given core set change their updates in opposite
  # directions that the core set does not see: their coordinates and their sum
  # stay. If anything else of them were kept, something would change.
  process = _process(
    core_set=(0, 1), aggregation=design, estimator='stable', sketch_size=4096
  )
  before = [
    {i: _update(i, seed) for i in (0, 1, 2, _OTHER, 5)} for seed in range(3)
  ]
  core = np.stack([round_[i] for round_ in before for i in (0, 1)])
  after = []
  for seed, updates in enumerate(before):
    change = 5 * _perpendicular(np.float64(core), seed)
    after.append(dict(updates))
    after[-1][_OTHER] = updates[_OTHER] + change
    after[-1][5] = updates[5] - change
  first, second = (_rounds(process, rounds) for rounds in (before, after))
  for name, found in second[0].items():
    np.testing.assert_allclose(
      found, first[0][name], rtol=1e-4, atol=1e-5, err_msg=name
    )
  np.testing.assert_allclose(second[1], first[1], rtol=1e-4, atol=1e-5)
  # A member's change does show.
  changed = [
    {**updates, 1: updates[1] + 5 * _perpendicular(np.float64(core), 7)}
    for updates in before
  ]
  third, _ = _rounds(process, changed)
  assert np.max(np.abs(third['core_updates'] - first[0]['core_updates'])) > 0.1


@pytest.mark.parametrize('design', aggregators.DESIGNS)
def test_a_given_core_set_is_all_whose_updates_are_kept(design):
  process = _process(core_set=(3, 1), aggregation=design)
  rounds = [{i: _update(i, seed) for i in range(_N)} for seed in range(3)]
  state, _ = _rounds(process, rounds)
  assert 'pool' not in state
  np.testing.assert_array_equal(state['core_set'], [3, 1])
  np.testing.assert_array_equal(
    state['core_updates'], np.stack([rounds[-1][3], rounds[-1][1]])
  )
  # No other tensor of the state is long enough to hold an update.
  assert {
    name for name, part in state.items() if np.size(part) >= _DIMENSION
  } == {'core_updates'}


def test_a_core_set_that_is_chosen_may_keep_the_update_of_anybody():
  process = _process(warmup_rounds=1)
  updates = {i: _update(i) for i in range(2, _N)}
  state, _ = _rounds(process, [updates])
  members = [int(i) for i in state['core_set']]
  assert len(set(members) & set(updates)) == _K
  for row, member in zip(state['core_updates'], members):
    np.testing.assert_array_equal(row, updates[member])
  for i, update in updates.items():
    place = int(np.flatnonzero(state['pool']['client_id'] == i)[0])
    np.testing.assert_allclose(
      state['pool']['sketch'][place],
      _sketch(update[np.newaxis])[0],
      rtol=1e-4,
      atol=1e-5,
    )


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))

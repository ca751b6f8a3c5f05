"""Runs of other methods and tasks that are resumed, by a new process or not."""

import json
import struct

import numpy as np
import pytest

from tests.scripts import training_runs

pytestmark = pytest.mark.slow


def test_a_private_correction_trains_and_resumes(tmp_path):
  folder = tmp_path / 'run'
  for rounds in (2, 4):
    code, _, stderr = training_runs.here(
      '--task=digits',
      '--estimator=stable',
      '--partition=bipartite',
      '--num_clients=30',
      '--participation_rate=0.2',
      '--core_set_size=4',
      '--warmup_rounds=3',
      '--enforce_core_every=3',
      '--evaluate_every=2',
      '--checkpoint_every=4',
      '--aggregation=client_projection',
      '--correction=private',
      '--correction_norm=0.1',
      '--noise_multiplier=0.1',
      f'--rounds={rounds}',
      f'--output_dir={folder}',
    )
    assert code == 0, stderr
  assert 'after round 2' in stderr
  rows = training_runs.rows(folder)
  assert [int(row['round']) for row in rows] == [1, 2, 3, 4]
  config = json.loads((folder / 'config.json').read_text())
  assert config['flags']['noise_multiplier'] == 0.1


@pytest.mark.parametrize(
  'algorithm',
  [
    ('fedprox', '--proximal_strength=0.1'),
    ('fedstale', '--beta=0.5', '--correction_smoothing=0.5'),
    ('mifa', '--enforce_core_every=2', '--enforced_clients=3,8'),
    ('scaffold',),
  ],
  ids=lambda flags: flags[0],
)
def test_a_baseline_resumes_to_what_it_would_have_been(tmp_path, algorithm):
  name, *rest = algorithm

  def flags(rounds):
    return [
      '--task=digits',
      f'--algorithm={name}',
      '--num_clients=10',
      '--participation_rate=0.3',
      *rest,
      f'--rounds={rounds}',
    ]

  straight, resumed = tmp_path / 'straight', tmp_path / 'resumed'
  for folder, rounds in ((straight, 5), (resumed, 2)):
    code, _, stderr = training_runs.here(
      *flags(rounds), f'--output_dir={folder}'
    )
    assert code == 0, stderr
  # By a process that has nothing but the files.
  code, _, stderr = training_runs.Forked(resumed, *flags(5)).finish()
  assert code == 0, stderr
  assert 'after round 2' in stderr
  rows = training_runs.determined(straight)
  assert len(rows) == 5
  assert rows == training_runs.determined(resumed)
  training_runs.assert_same_state(resumed, straight, 5)
  if name == 'mifa':
    cohorts = [set(row['cohort'].split()) for row in rows]
    for one, next_one in zip(cohorts, cohorts[1:]):
      assert {'3', '8'} <= one | next_one


def _write_images(folder, num_train):
  """Writes files as Fashion-MNIST's, with images of noise."""
  folder.mkdir()
  generator = np.random.default_rng(0)
  for split, n in (('train', num_train), ('t10k', 20)):
    images = generator.integers(0, 256, (n, 28, 28), np.uint8)
    labels = (np.arange(n) % 10).astype(np.uint8)
    for name, array in (('images-idx3', images), ('labels-idx1', labels)):
      header = struct.pack('>BBBB', 0, 0, 8, array.ndim)
      header += struct.pack(f'>{array.ndim}I', *array.shape)
      (folder / f'{split}-{name}-ubyte').write_bytes(header + array.tobytes())


def test_data_may_be_moved_but_not_changed(tmp_path):
  flags = (
    '--task=fashion_mnist',
    '--model=mlp',
    '--algorithm=fedavg',
    '--num_clients=10',
    '--partition=iid',
    '--participation_rate=0.5',
  )

  def train(data, rounds):
    code, _, stderr = training_runs.here(
      *flags,
      f'--data_dir={tmp_path / data}',
      f'--rounds={rounds}',
      f'--output_dir={tmp_path}/run',
    )
    return code, stderr

  _write_images(tmp_path / 'here', 40)
  code, stderr = train('here', 1)
  assert code == 0, stderr
  before = training_runs.hashes(tmp_path / 'run')
  (tmp_path / 'here').rename(tmp_path / 'there')
  code, stderr = train('there', 2)
  assert code == 0, stderr
  after = training_runs.hashes(tmp_path / 'run')
  # More rounds are planned; everything else is as it was.
  assert after.pop('participation') != before.pop('participation')
  assert after == before
  _write_images(tmp_path / 'other', 60)
  snapshot = training_runs.snapshot(tmp_path / 'run')
  code, stderr = train('other', 3)
  assert code == 2, stderr
  assert 'was begun with another partition (hash' in stderr
  assert len(stderr.splitlines()) == 1
  assert training_runs.snapshot(tmp_path / 'run') == snapshot


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))

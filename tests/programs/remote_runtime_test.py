"""Tests for remote_runtime, with workers on this machine."""

import asyncio
from concurrent import futures
import datetime
import ipaddress
import re
import socket
import threading
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid
import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import remote_runtime
from tests import worker_processes
from tests.programs import small_process


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _add_up(values):
  return tff.federated_sum(values)


@pytest.fixture(scope='module', name='workers')
def _workers(tmp_path_factory):
  folder = tmp_path_factory.mktemp('workers')
  with worker_processes.workers(folder, 3) as started:
    yield started


def _connect(workers, seconds=20.0, **kwargs):
  return remote_runtime.RemoteRuntime(
    [worker.address for worker in workers], timeout_seconds=seconds, **kwargs
  )


def _assert_equal(actual, expected):
  tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)


def _client_data(client_id, num_examples=8):
  return fedsteer_tff.build_client_data(
    client_id,
    small_process.dataset(client_id, num_examples),
    weight=1 / small_process.NUM_CLIENTS,
    participation_probability=0.5,
  )


@pytest.fixture(scope='module', name='process')
def _process():
  return fedsteer_tff.build_fedsteer(
    small_process.model_fn,
    small_process.NUM_CLIENTS,
    estimator='stable',
    core_set=[0, 3],
    sketch_size=4,
  )


@pytest.fixture(scope='module', name='local')
def _local(process):
  """A state with a full core set, client data and the local round of them."""
  data = [_client_data(i, num_examples=4 + i) for i in (1, 3, 4, 5)]
  with local_runtime.LocalRuntime().activate():
    state = process.initialize()
    for cohort in [0, 3, 4], [1, 2, 5]:
      state = process.next(state, [_client_data(i) for i in cohort]).state
    return state, data, process.next(state, data)


@pytest.mark.slow
def test_a_round_over_several_workers_equals_the_local_round(
  process, local, workers
):
  state, data, expected = local
  with _connect(workers[:2]).activate():
    before = [worker.cpu_seconds() for worker in workers]
    actual = process.next(state, data)
    used = [w.cpu_seconds() - b for w, b in zip(workers, before)]
  tf.nest.map_structure(
    lambda one, other: np.testing.assert_allclose(
      one, other, rtol=1e-6, atol=1e-6
    ),
    actual,
    expected,
  )
  assert used[0] > 0 and used[1] > 0 and used[2] == 0
  # Not because nothing has happened.
  weights = process.get_model_weights
  moved = small_process.flat(weights(actual.state))
  moved -= small_process.flat(weights(state))
  assert np.max(np.abs(moved)) > 0.01


@pytest.mark.slow
def test_a_round_on_one_worker_is_the_local_round(process, local, workers):
  state, data, expected = local
  with _connect(workers[1:2]).activate():
    _assert_equal(process.next(state, data), expected)


@pytest.mark.slow
def test_the_order_in_which_workers_finish_changes_nothing(
  process, local, workers
):
  state, data, _ = local
  with _connect(workers).activate():
    expected = process.next(state, data)
    for late in workers[:2]:
      late.runtime.suspend()
      timer = threading.Timer(1.0, late.runtime.resume)
      timer.start()
      try:
        _assert_equal(process.next(state, data), expected)
      finally:
        timer.join()


def test_workers_train_at_the_same_time(workers, monkeypatch):
  everybody_is_there = threading.Barrier(3)
  waited = set()
  invoke = remote_runtime._Worker.invoke

  def invoke_together(worker, comp, arg):
    if worker.address not in waited:
      waited.add(worker.address)
      everybody_is_there.wait(timeout=60)
    return invoke(worker, comp, arg)

  with _connect(workers).activate():
    monkeypatch.setattr(remote_runtime._Worker, 'invoke', invoke_together)
    assert _add_up([1.0, 2.0, 4.0]) == 7.0
  assert len(waited) == 3


def test_programs_run_over_several_workers_too(workers, monkeypatch):
  @tff.tensorflow.computation(np.float32)
  def negative(x):
    return -x

  used = set()
  invoke = remote_runtime._Worker.invoke

  def invoke_noted(worker, comp, arg):
    used.add(worker.address)
    return invoke(worker, comp, arg)

  async def program():
    # Two that do not need each other, and one that needs the first of them.
    total = _add_up([1.0, 2.0, 4.0])
    return await tff.program.materialize_value(
      [negative(total), _add_up([8.0]), total]
    )

  with _connect(workers[:2]).activate_for_programs():
    monkeypatch.setattr(remote_runtime._Worker, 'invoke', invoke_noted)
    assert asyncio.run(program()) == [-7.0, 8.0, 7.0]
  assert used == {worker.address for worker in workers[:2]}


@pytest.mark.parametrize('num_clients', [0, 1, 2, 7])
def test_any_number_of_clients_is_split(workers, num_clients):
  with _connect(workers).activate():
    values = [float(2**i) for i in range(num_clients)]
    assert _add_up(values) == 2**num_clients - 1


def test_computations_without_clients_run_on_the_first_worker(workers):
  @tff.tensorflow.computation(np.int32)
  def double(x):
    return 2 * x

  with _connect(workers).activate():
    for worker in workers[1:]:
      worker.runtime.suspend()
    try:
      assert double(4) == 8
    finally:
      for worker in workers[1:]:
        worker.runtime.resume()


def test_aggregations_that_need_each_other_need_a_single_worker(workers):
  @tff.tensorflow.computation(np.float32, np.float32)
  def subtract(x, y):
    return x - y

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def spread(values):
    mean = tff.federated_broadcast(tff.federated_mean(values))
    return tff.federated_sum(tff.federated_map(subtract, (values, mean)))

  with _connect(workers[:1]).activate():
    assert spread([1.0, 2.0, 3.0]) == 0.0
  with _connect(workers).activate():
    with pytest.raises(
      remote_runtime.RemoteRuntimeError,
      match='must have aggregations that do not need each other',
    ):
      spread([1.0, 2.0, 3.0])


@pytest.mark.parametrize('number', [1, 2])
def test_secure_sums_are_simulated_only_where_one_wishes(workers, number):
  process = tff.aggregators.SecureSumFactory(4.0).create(
    tff.TensorType(np.float32)
  )

  def add_up(**kwargs):
    with _connect(workers[:number], **kwargs).activate():
      state = process.initialize()
      return process.next(state, [np.float32(1.5), np.float32(-0.5)])

  output = add_up(simulate_secure_sums=True)
  np.testing.assert_allclose(output.result, 1.0, atol=1e-6)
  with pytest.raises(
    remote_runtime.RemoteRuntimeError,
    match='must be run with simulate_secure_sums=True, found False',
  ):
    add_up()


def test_noise_is_added_once_however_many_workers_there_are(workers):
  size, norm = 20_000, 0.25
  process = fedsteer_tff.aggregators.private_correction(2.0, norm).create(
    tff.TensorType(np.float32, [size])
  )
  with _connect(workers).activate():
    state = process.initialize()
    output = process.next(state, [np.zeros([size], np.float32)] * 3)
  # Of three times that noise the deviation would be 1.7 times larger.
  np.testing.assert_allclose(np.std(output.result), 2.0 * norm, rtol=0.03)


@pytest.mark.slow
def test_a_worker_killed_in_a_round_is_named_and_can_be_replaced(tmp_path):
  process = small_process.build_process()
  data = [small_process.dataset(i) for i in range(3)]
  endless = [*data, data[0].repeat(10**9)]  # For the second worker.
  with worker_processes.workers(tmp_path, 2) as workers:
    first, second = workers
    with _connect(workers).activate():
      state = process.initialize()
      expected = process.next(state, data)

    def kill_in_the_round():
      start = second.cpu_seconds()
      while second.cpu_seconds() < start + 1.0:
        time.sleep(0.02)
      second.end()
      return time.monotonic()

    runtime = _connect(workers, seconds=1.0)
    with futures.ThreadPoolExecutor(1) as pool:
      killed = pool.submit(kill_in_the_round)
      with pytest.raises(
        remote_runtime.RemoteRuntimeError,
        match=f'^worker {second.address} must answer within 1 s, found .*$',
      ):
        with runtime.activate():
          process.next(state, endless)
      assert time.monotonic() - killed.result() < 10

    workers[1] = worker_processes.Worker(tmp_path, second.port)
    with _connect(workers).activate():
      _assert_equal(process.next(state, data), expected)
    assert first.process.poll() is None


@pytest.mark.slow
def test_a_worker_started_again_between_two_rounds_goes_unnoticed(tmp_path):
  with worker_processes.workers(tmp_path, 2) as workers:
    with _connect(workers).activate():
      assert _add_up([1.0, 2.0]) == 3.0
      for i, worker in enumerate(list(workers)):
        worker.end()
        workers[i] = worker_processes.Worker(tmp_path, worker.port)
        assert _add_up([1.0, 4.0]) == 5.0


def test_workers_without_an_answer_fail_in_time_and_are_named(workers):
  closed = f'localhost:{worker_processes.free_port()}'
  with socket.create_server(('localhost', 0)) as silent:
    hanging = f'localhost:{silent.getsockname()[1]}'
    start = time.monotonic()
    with pytest.raises(remote_runtime.RemoteRuntimeError) as e:
      remote_runtime.RemoteRuntime(
        [closed, workers[0].address, hanging], timeout_seconds=1.0
      )
    assert time.monotonic() - start < 5
  one, other = str(e.value).split('; worker ')
  assert one.startswith(f'worker {closed} must answer within 1 s, found ')
  assert 'refused' in one
  assert other.startswith(f'{hanging} must answer within 1 s, found ')
  assert '\n' not in str(e.value)


def test_a_server_that_does_not_know_the_calls_is_named():
  with futures.ThreadPoolExecutor(1) as pool:
    server = grpc.server(pool)
    port = server.add_insecure_port('localhost:0')
    server.start()
    try:
      with pytest.raises(
        remote_runtime.RemoteRuntimeError,
        match=f'^worker localhost:{port} must run what it is sent by TFF'
        rf' {re.escape(tff.__version__)}, found UNIMPLEMENTED: ',
      ):
        remote_runtime.RemoteRuntime([f'localhost:{port}'])
    finally:
      server.stop(0).wait()


@pytest.mark.parametrize(
  ('workers', 'seconds', 'message'),
  [
    ([], 1.0, 'workers must be at least one host:port, found none'),
    (['a:1', 'A:01'], 1.0, "different addresses, found 'a:1' and 'A:01'"),
    (['a:1', ''], 1.0, "workers must be host:port, .* found '' in 'a:1,'"),
    (['http://a:1'], 1.0, "workers must be host:port, .* found 'http://a:1'"),
    (
      ['a:1'],
      0.0,
      'timeout_seconds must be > 0 and at most a day .* found 0.0',
    ),
    (['a:1'], float('nan'), 'timeout_seconds must be > 0 .* found nan'),
    (['a:1'], float('inf'), 'timeout_seconds must be > 0 .* found inf'),
  ],
)
def test_wrong_arguments_are_refused(workers, seconds, message):
  with pytest.raises(ValueError, match=message):
    remote_runtime.RemoteRuntime(workers, timeout_seconds=seconds)


def test_a_name_without_an_address_fails_in_time_and_says_so():
  start = time.monotonic()
  with pytest.raises(
    remote_runtime.RemoteRuntimeError,
    match='^worker host.invalid:1 must answer within 1 s, found no a.* of'
    ' host.invalid',
  ):
    remote_runtime.RemoteRuntime(['host.invalid:1'], timeout_seconds=1.0)
  assert time.monotonic() - start < 5


def test_a_look_up_without_an_answer_is_given_up_in_time(monkeypatch):
  answered = threading.Event()

  def getaddrinfo(*unused_arguments, **unused_options):
    assert answered.wait(60)
    raise socket.gaierror(socket.EAI_AGAIN, 'Try again')

  monkeypatch.setattr(remote_runtime.socket, 'getaddrinfo', getaddrinfo)
  start = time.monotonic()
  try:
    with pytest.raises(
      remote_runtime.RemoteRuntimeError,
      match='^worker a.example:1 must answer within 1 s, found no answer to the'
      ' look-up of a.example; worker b.example:1 must answer within 1 s, found',
    ):
      remote_runtime.RemoteRuntime(
        ['a.example:1', 'b.example:1'], timeout_seconds=1.0
      )
    assert time.monotonic() - start < 5
  finally:
    answered.set()


def test_a_name_that_gets_its_address_in_time_is_used(workers, monkeypatch):
  getaddrinfo = socket.getaddrinfo
  failures = [socket.gaierror(socket.EAI_NONAME, 'unknown')] * 2

  def later(*arguments, **options):
    if failures:
      raise failures.pop()
    return getaddrinfo(*arguments, **options)

  monkeypatch.setattr(remote_runtime.socket, 'getaddrinfo', later)
  with _connect(workers[:1]).activate():
    assert _add_up([1.0, 2.0]) == 3.0
  assert not failures


class _Authority:
  """Signs certificates, as one's own authority for workers would."""

  def __init__(self, folder):
    self._folder = folder
    self._key = ec.generate_private_key(ec.SECP256R1())
    self._name = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, 'ca')])
    self.certificate = self._write(
      'ca.pem', self._sign(self._name, self._key.public_key(), True)
    )

  def issue(self, name):
    """Returns the files of a certificate for this machine and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])
    certificate = self._sign(subject, key.public_key(), False)
    key_bytes = key.private_bytes(
      serialization.Encoding.PEM,
      serialization.PrivateFormat.PKCS8,
      serialization.NoEncryption(),
    )
    return (
      self._write(f'{name}.pem', certificate),
      self._write(f'{name}.key', key_bytes),
    )

  def _sign(self, subject, public_key, is_authority):
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [
      x509.DNSName('localhost'),
      x509.IPAddress(ipaddress.ip_address('127.0.0.1')),
    ]
    certificate = (
      x509.CertificateBuilder()
      .subject_name(subject)
      .issuer_name(self._name)
      .public_key(public_key)
      .serial_number(x509.random_serial_number())
      .not_valid_before(now - datetime.timedelta(hours=1))
      .not_valid_after(now + datetime.timedelta(hours=1))
      .add_extension(x509.SubjectAlternativeName(names), critical=False)
      .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
      .sign(self._key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)

  def _write(self, name, content):
    path = self._folder / name
    path.write_bytes(content)
    return path


def _credentials(authority, certificate, key):
  return grpc.ssl_channel_credentials(
    authority.certificate.read_bytes(),
    key.read_bytes() if key else None,
    certificate.read_bytes() if certificate else None,
  )


@pytest.mark.slow
def test_with_tls_both_sides_must_show_a_certificate(tmp_path):
  (tmp_path / 'stranger').mkdir()
  authority = _Authority(tmp_path)
  stranger = _Authority(tmp_path / 'stranger')
  certificate, key = authority.issue('worker')
  own = authority.issue('caller')
  flags = (
    f'--tls_certificate={certificate}',
    f'--tls_key={key}',
    f'--tls_ca={authority.certificate}',
  )
  with worker_processes.workers(tmp_path, 2, *flags) as workers:
    assert 'with TLS' in workers[0].output
    # More than one chunk of what is passed on.
    numbers = tff.TensorType(np.float32, [200_000])

    @tff.federated_computation(tff.FederatedType(numbers, tff.CLIENTS))
    def add_up(values):
      return tff.federated_sum(values)

    values = np.arange(200_000, dtype=np.float32)
    trusted = _credentials(authority, *own)
    with _connect(workers, credentials=trusted).activate():
      np.testing.assert_array_equal(add_up([values, values]), 2 * values)

    for credentials in (
      None,
      _credentials(authority, None, None),
      _credentials(authority, *stranger.issue('caller')),
      _credentials(stranger, *own),
    ):
      with pytest.raises(
        remote_runtime.RemoteRuntimeError,
        match=f'^worker {workers[0].address} must answer within 1 s, found ',
      ):
        _connect(workers[:1], seconds=1.0, credentials=credentials)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))

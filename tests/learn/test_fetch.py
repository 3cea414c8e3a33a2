import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hpctrip.app.cli import cli
from hpctrip.base.errors import InputError
from hpctrip.learn.workloads.fetch import FETCHERS, SHAKESPEARE_SHA256, fetch_emnist, fetch_shakespeare

SHARED = Path(__file__).parents[2].parent / "shared/data/shakespeare/tinyshakespeare_input.txt"


def archive(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as content:
        for name, data in members.items():
            content.writestr(name, data)
    return buffer.getvalue()


OFFICIAL_LAYOUT = archive(
    {
        "gzip/emnist-byclass-train-images-idx3-ubyte.gz": b"images",
        "gzip/emnist-byclass-train-labels-idx1-ubyte.gz": b"labels",
        "gzip/readme.txt": b"not wanted",
    }
)


def md5(content):
    return "md5:" + hashlib.md5(content).hexdigest()


@pytest.fixture
def serve():
    """Start a loopback server that answers with `content`, announcing `length` bytes; returns its address."""
    servers = []

    def start(content, length=None, status=200):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.send_header("Content-Length", str(len(content) if length is None else length))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/gzip.zip"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def refused(destination, url, known_hash="md5:" + "0" * 32):
    """The report of a fetch that must fail."""
    with pytest.raises(InputError) as error:
        fetch_emnist(destination, url, known_hash, progress=False)
    assert error.value.faults[0].way_out
    return str(error.value)


def test_the_files_of_the_archive_are_put_flat_into_the_directory(serve, tmp_path):
    directory = tmp_path / "new" / "emnist"
    files = fetch_emnist(directory, serve(OFFICIAL_LAYOUT), md5(OFFICIAL_LAYOUT), progress=False)
    assert sorted(directory.iterdir()) == files
    assert [path.name for path in files] == [
        "emnist-byclass-train-images-idx3-ubyte.gz",
        "emnist-byclass-train-labels-idx1-ubyte.gz",
    ]
    assert files[0].read_bytes() == b"images"


def test_progress_is_shown_only_on_request(serve, tmp_path, capsys):
    fetch_emnist(tmp_path, serve(OFFICIAL_LAYOUT), md5(OFFICIAL_LAYOUT), progress=True)
    assert "100%" in capsys.readouterr().err


def test_a_wrong_checksum_leaves_nothing_behind(serve, tmp_path):
    report = refused(tmp_path / "emnist", serve(OFFICIAL_LAYOUT))
    assert "its hash is not md5:0000" in report
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_checksum_leaves_the_files_that_were_there(serve, tmp_path):
    (tmp_path / "emnist-byclass-train-images-idx3-ubyte.gz").write_bytes(b"mine")
    refused(tmp_path, serve(OFFICIAL_LAYOUT))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]


def test_an_interrupted_download_is_one_clear_report(serve, tmp_path):
    url = serve(OFFICIAL_LAYOUT[:100], length=len(OFFICIAL_LAYOUT))
    assert url in refused(tmp_path / "emnist", url, md5(OFFICIAL_LAYOUT))
    assert list(tmp_path.iterdir()) == []


def test_a_refused_connection_is_named_as_such(serve, tmp_path):
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}/gzip.zip"
    assert "(Connection refused)" in refused(tmp_path / "emnist", url)


def test_a_page_that_is_not_there_is_named_as_such(serve, tmp_path):
    assert "404" in refused(tmp_path / "emnist", serve(b"gone", status=404))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"<html>not a zip</html>", "not a readable zip"), (archive({"readme.txt": b"x"}), "holds no emnist-")],
)
def test_an_archive_of_something_else_is_refused(serve, tmp_path, content, complaint):
    assert complaint in refused(tmp_path / "emnist", serve(content), md5(content))
    assert list(tmp_path.iterdir()) == []


def test_a_destination_that_is_a_file_is_refused_before_the_download(tmp_path):
    (tmp_path / "emnist").write_bytes(b"mine")
    assert "cannot be stored here (File exists)" in refused(
        tmp_path / "emnist", "http://127.0.0.1:9/never-asked"
    )


def test_the_text_of_shakespeare_is_put_into_the_directory_under_its_name(serve, tmp_path):
    text = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"
    (path,) = fetch_shakespeare(tmp_path / "plays", serve(text), md5(text), progress=False)
    assert path == tmp_path / "plays/tinyshakespeare.txt" and path.read_bytes() == text
    with pytest.raises(InputError, match=r"its hash is not sha256:86c4.*or download the file elsewhere"):
        fetch_shakespeare(tmp_path / "other", serve(text), progress=False)
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(not SHARED.exists(), reason="no tinyshakespeare_input.txt in ../shared/data/shakespeare")
def test_the_checksum_is_that_of_the_text_in_circulation():
    assert "sha256:" + hashlib.sha256(SHARED.read_bytes()).hexdigest() == SHAKESPEARE_SHA256


def test_the_command_line_offers_every_data_set_that_can_be_fetched():
    (argument, _) = cli.commands["fetch"].params
    assert list(argument.type.choices) == sorted(FETCHERS)

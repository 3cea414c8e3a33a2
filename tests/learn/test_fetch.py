import hashlib
import io
import os
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import pytest

from hpctrip.base.errors import InputError
from hpctrip.learn.data.fetch import SOURCES, Download, fetch

UMASK = os.umask(0)
os.umask(UMASK)


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
    """Start a loopback server that answers with `content`; returns its address. Each of `cuts` says after how many
    bytes one answer breaks off."""
    servers = []

    def start(content, status=200, name="gzip.zip", cuts=()):
        cuts = list(cuts)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: cuts.pop(0)] if cuts else content)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/{name}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def emnist(url, known_hash="md5:" + "0" * 32):
    return replace(SOURCES["emnist"], url=url, known_hash=known_hash)


def refused(destination, *source):
    """The report of a fetch that must fail."""
    with pytest.raises(InputError) as error:
        fetch(emnist(*source), destination)
    assert error.value.faults[0].hint
    return str(error.value)


def test_the_files_of_the_archive_are_put_flat_into_the_directory(serve, tmp_path):
    directory = tmp_path / "new" / "emnist"
    files = fetch(emnist(serve(OFFICIAL_LAYOUT), md5(OFFICIAL_LAYOUT)), directory)
    assert sorted(directory.iterdir()) == files
    assert [path.name for path in files] == [
        "emnist-byclass-train-images-idx3-ubyte.gz",
        "emnist-byclass-train-labels-idx1-ubyte.gz",
    ]
    assert files[0].read_bytes() == b"images"


def test_a_wrong_checksum_leaves_the_files_that_were_there_and_nothing_else(serve, tmp_path):
    (tmp_path / "emnist-byclass-train-images-idx3-ubyte.gz").write_bytes(b"mine")
    assert "its hash is not md5:0000" in refused(tmp_path, serve(OFFICIAL_LAYOUT))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]


def test_a_download_that_breaks_off_leaves_nothing_and_the_next_try_starts_anew(serve, tmp_path):
    content = archive({"emnist-large": bytes(200_000)})
    url = serve(content, cuts=[150_000])
    report = refused(tmp_path / "emnist", url, md5(content))
    assert f"{url}: the download failed (" in report
    assert list((tmp_path / "emnist").iterdir()) == []
    files = fetch(emnist(url, md5(content)), tmp_path / "emnist")
    assert sorted((tmp_path / "emnist").iterdir()) == files and len(files) == 1


def speech(serve, *names):
    """A source of a tar archive with these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as content:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 4
            content.addfile(member, io.BytesIO(b"data"))
    url = serve(buffer.getvalue(), name="speech.tar.gz")
    return replace(SOURCES["speech"], url=url, known_hash=md5(buffer.getvalue()))


def test_an_archive_of_folders_keeps_them(serve, tmp_path):
    source = speech(serve, "./yes/a_nohash_0.wav", "./testing_list.txt")
    files = fetch(source, tmp_path)
    assert files == [tmp_path / "testing_list.txt", tmp_path / "yes" / "a_nohash_0.wav"]


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python's tarfile has no filters")
def test_a_tar_archive_cannot_write_elsewhere(serve, tmp_path):
    with pytest.raises(tarfile.OutsideDestinationError):
        fetch(speech(serve, "../../outside.txt"), tmp_path / "speech")
    assert [path.name for path in tmp_path.rglob("*")] == ["speech"]


def test_a_single_file_is_stored_under_its_name(serve, tmp_path):
    source = Download("a text", serve(b"words"), md5(b"words"), 5, file_name="words.txt")
    assert fetch(source, tmp_path) == [tmp_path / "words.txt"]
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"words" and path.stat().st_mode & 0o777 == 0o666 & ~UMASK


def test_a_zip_archive_cannot_write_elsewhere(serve, tmp_path):
    content = archive({"../emnist-evil": b"x", "emnist-good": b"x"})
    files = fetch(emnist(serve(content), md5(content)), tmp_path / "emnist")
    assert {path.parent for path in files} == {tmp_path / "emnist"}
    assert [path.name for path in tmp_path.iterdir()] == ["emnist"]


def test_an_address_without_the_file_is_named_with_the_reason(serve, tmp_path):
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}/gzip.zip"
    assert "(Connection refused)" in refused(tmp_path / "emnist", url)
    assert "404" in refused(tmp_path / "emnist", serve(b"gone", status=404))


def test_a_destination_that_is_a_file_is_refused_before_the_download(tmp_path):
    (tmp_path / "emnist").write_bytes(b"mine")
    assert "cannot be stored here (File exists)" in refused(
        tmp_path / "emnist", "http://127.0.0.1:9/never-asked"
    )

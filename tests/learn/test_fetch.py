import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import pytest

from hpctrip.base.errors import InputError
from hpctrip.learn.data.fetch import SOURCES, Source, fetch, partial_path


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
    """Start a loopback server that answers with `content`; returns its address. Of `cuts` each says after how many
    bytes one answer breaks off; `hold` is called before an answer."""
    servers = []

    def start(content, status=200, name="gzip.zip", ranges=False, asked=None, cuts=(), hold=lambda: None):
        cuts = list(cuts)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                hold()
                wanted = self.headers.get("Range")
                if asked is not None:
                    asked.append(wanted)
                if ranges and wanted and not cuts:
                    first = int(wanted.removeprefix("bytes=").removesuffix("-"))
                    rest = content[first:]
                    self.send_response(206 if rest else 416)
                    self.send_header("Content-Length", str(len(rest)))
                    self.end_headers()
                    self.wfile.write(rest)
                    return
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
        fetch(emnist(*source), destination, progress=False)
    assert error.value.faults[0].way_out
    return str(error.value)


def test_the_files_of_the_archive_are_put_flat_into_the_directory(serve, tmp_path):
    directory = tmp_path / "new" / "emnist"
    files = fetch(emnist(serve(OFFICIAL_LAYOUT), md5(OFFICIAL_LAYOUT)), directory, progress=False)
    assert sorted(directory.iterdir()) == files
    assert [path.name for path in files] == [
        "emnist-byclass-train-images-idx3-ubyte.gz",
        "emnist-byclass-train-labels-idx1-ubyte.gz",
    ]
    assert files[0].read_bytes() == b"images"


def test_progress_is_shown_only_on_request(serve, tmp_path, capsys):
    source = emnist(serve(OFFICIAL_LAYOUT), md5(OFFICIAL_LAYOUT))
    fetch(source, tmp_path / "quiet", progress=False)
    assert capsys.readouterr().err == ""
    fetch(source, tmp_path / "shown", progress=True)
    assert f"{len(OFFICIAL_LAYOUT)}/{len(OFFICIAL_LAYOUT)} bytes" in capsys.readouterr().err


def test_a_wrong_checksum_leaves_nothing_behind(serve, tmp_path):
    report = refused(tmp_path / "emnist", serve(OFFICIAL_LAYOUT))
    assert "its hash is not md5:0000" in report
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_checksum_leaves_the_files_that_were_there(serve, tmp_path):
    (tmp_path / "emnist-byclass-train-images-idx3-ubyte.gz").write_bytes(b"mine")
    refused(tmp_path, serve(OFFICIAL_LAYOUT))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]


def test_an_interrupted_download_goes_on_where_it_stopped(serve, tmp_path):
    content = archive({"emnist-large": bytes(200_000)})
    asked = []
    url = serve(content, ranges=True, asked=asked, cuts=[150_000])
    report = refused(tmp_path / "emnist", url, md5(content))
    # what is kept are whole chunks
    assert url in report and "the download failed after 131,072 bytes, which are kept" in report
    files = fetch(emnist(url, md5(content)), tmp_path / "emnist", progress=False)
    assert asked == [None, "bytes=131072-"]
    assert sorted((tmp_path / "emnist").iterdir()) == files  # nothing partial is left


def test_what_one_source_has_left_is_nothing_to_another(serve, tmp_path):
    content = archive({"emnist-large": bytes(200_000)})
    refused(tmp_path, serve(content, cuts=[150_000]), md5(content))
    (left,) = tmp_path.iterdir()
    asked = []
    url = serve(OFFICIAL_LAYOUT, ranges=True, asked=asked)
    files = fetch(emnist(url, md5(OFFICIAL_LAYOUT)), tmp_path, progress=False)
    assert asked == [None] and sorted(tmp_path.iterdir()) == sorted([*files, left])


def test_two_at_once_do_not_share_a_download(serve, tmp_path):
    asked, go_on = threading.Event(), threading.Event()

    def hold():
        asked.set()
        assert go_on.wait(60)

    url, found = serve(OFFICIAL_LAYOUT, hold=hold), []
    source = emnist(url, md5(OFFICIAL_LAYOUT))
    first = threading.Thread(target=lambda: found.extend(fetch(source, tmp_path, progress=False)))
    first.start()
    assert asked.wait(60)
    assert "another process is fetching the same into it; wait for it" in refused(
        tmp_path, url, source.known_hash
    )
    go_on.set()
    first.join()
    assert sorted(tmp_path.iterdir()) == found and len(found) == 2
    assert fetch(source, tmp_path, progress=False) == found


KILLED = """
import os, signal, sys
from hpctrip.learn.data import fetch
def die(*arguments): os.kill(os.getpid(), signal.SIGKILL)
fetch._put_in_place = die
source = fetch.Source("EMNIST", sys.argv[1], sys.argv[2], 1e6, wanted="emnist-*")
fetch.fetch(source, sys.argv[3], progress=False)
"""


def test_what_a_killed_process_left_is_used_and_removed_by_the_next(serve, tmp_path):
    asked = []
    url = serve(OFFICIAL_LAYOUT, ranges=True, asked=asked)
    arguments = [url, md5(OFFICIAL_LAYOUT), str(tmp_path)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".files", ".part"]
    files = fetch(Source("EMNIST", *arguments[:2], 1e6, wanted="emnist-*"), tmp_path, progress=False)
    assert asked == [None, f"bytes={len(OFFICIAL_LAYOUT)}-"]
    assert sorted(tmp_path.iterdir()) == files and len(files) == 2


def test_an_interrupt_while_unpacking_leaves_the_download_alone(serve, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    source = emnist(serve(OFFICIAL_LAYOUT, ranges=True), md5(OFFICIAL_LAYOUT))
    with monkeypatch.context() as patch:
        patch.setattr("hpctrip.learn.data.fetch._put_in_place", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch(source, tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == [partial_path(source, tmp_path)]
    files = fetch(source, tmp_path, progress=False)
    assert sorted(tmp_path.iterdir()) == files


def test_a_server_that_sends_without_end_is_not_listened_to(serve, tmp_path):
    content = bytes(3 * 2**20)
    source = Source("a text", serve(content), "md5:" + "0" * 32, 5, file_name="words.txt")
    with pytest.raises(InputError, match="its hash is not"):
        fetch(source, tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("odd", ["link", "pipe"])
def test_what_somebody_put_in_the_way_is_neither_followed_nor_waited_for(serve, tmp_path, odd):
    folder, precious = tmp_path / "emnist", tmp_path / "precious"
    precious.write_bytes(b"mine")
    folder.mkdir()
    url = serve(OFFICIAL_LAYOUT)
    path = partial_path(emnist(url), folder)
    path.symlink_to(precious) if odd == "link" else os.mkfifo(path)
    assert "cannot be stored here" in refused(folder, url)
    assert precious.read_bytes() == b"mine"


@pytest.mark.parametrize("ranges", [True, False], ids=["which has no more", "which begins anew"])
def test_a_download_that_is_all_there_already_is_finished_by_any_server(ranges, serve, tmp_path):
    source = emnist(serve(OFFICIAL_LAYOUT, ranges=ranges), md5(OFFICIAL_LAYOUT))
    partial_path(source, tmp_path).write_bytes(OFFICIAL_LAYOUT)
    assert len(fetch(source, tmp_path, progress=False)) == 2


def test_a_damaged_part_is_not_kept(serve, tmp_path):
    url = serve(OFFICIAL_LAYOUT, ranges=True)
    partial_path(emnist(url, md5(OFFICIAL_LAYOUT)), tmp_path).write_bytes(b"x" * 100)
    assert "its hash is not" in refused(tmp_path, url, md5(OFFICIAL_LAYOUT))
    assert len(fetch(emnist(url, md5(OFFICIAL_LAYOUT)), tmp_path, progress=False)) == 2


def test_an_archive_of_folders_keeps_them(serve, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as content:
        for name in ("./yes/a_nohash_0.wav", "./testing_list.txt", "../outside.txt", "/tmp/outside.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            content.addfile(member, io.BytesIO(b"data"))
    url = serve(buffer.getvalue(), name="speech.tar.gz")
    source = replace(SOURCES["speech"], url=url, known_hash=md5(buffer.getvalue()))
    files = fetch(source, tmp_path, progress=False)
    assert files == [tmp_path / "testing_list.txt", tmp_path / "yes" / "a_nohash_0.wav"]
    assert not list(tmp_path.parent.glob("outside.txt"))


def test_a_single_file_is_stored_under_its_name(serve, tmp_path):
    source = Source("a text", serve(b"words"), md5(b"words"), 5, file_name="words.txt")
    assert fetch(source, tmp_path, progress=False) == [tmp_path / "words.txt"]
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"words"]


def test_an_archive_cannot_write_elsewhere(serve, tmp_path):
    content = archive({"../emnist-evil": b"x", "emnist-good": b"x"})
    files = fetch(emnist(serve(content), md5(content)), tmp_path / "emnist", progress=False)
    assert {path.parent for path in files} == {tmp_path / "emnist"}
    assert [path.name for path in tmp_path.iterdir()] == ["emnist"]


def test_a_refused_connection_is_named_as_such(serve, tmp_path):
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}/gzip.zip"
    assert "(Connection refused)" in refused(tmp_path / "emnist", url)


def test_a_page_that_is_not_there_is_named_as_such(serve, tmp_path):
    assert "404" in refused(tmp_path / "emnist", serve(b"gone", status=404))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"<html>not a zip</html>", "not a readable archive"),
        (archive({"readme.txt": b"x"}), "holds no emnist-"),
    ],
)
def test_an_archive_of_something_else_is_refused(serve, tmp_path, content, complaint):
    assert complaint in refused(tmp_path / "emnist", serve(content), md5(content))
    assert list(tmp_path.iterdir()) == []


def test_a_destination_that_is_a_file_is_refused_before_the_download(tmp_path):
    (tmp_path / "emnist").write_bytes(b"mine")
    assert "cannot be stored here (File exists)" in refused(
        tmp_path / "emnist", "http://127.0.0.1:9/never-asked"
    )

import sys
import threading
import warnings

import pytest

from ludic_gym import ConfigError, LudicError, MissingPackage
from ludic_gym.packages import optional

DATA = "ludic-gym[data]"


def test_an_installed_module_is_returned():
    assert optional("json.decoder", DATA).JSONDecoder().decode("1") == 1


def test_a_missing_package_is_named_with_its_extra():
    expected = r"^no_such_package.part cannot .* pip install .*\[data\]' \(No module"
    with pytest.raises(MissingPackage, match=expected):
        optional("no_such_package.part", DATA)
    assert issubclass(MissingPackage, ConfigError)
    assert issubclass(MissingPackage, LudicError)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package with the text as its source; its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_a_package_that_misses_another_is_reported_with_the_reason(package):
    name = package("half_installed", "import no_such_dependency")
    with pytest.raises(MissingPackage, match=r"half_installed cannot .*'no_such_dependency'"):
        optional(name, DATA)


def test_warnings_and_prints_at_import_are_discarded(package, capsys):
    name = package("loud", "import warnings; warnings.warn('old'); print('hello'); fact = 1")
    assert optional(name, DATA).fact == 1
    assert capsys.readouterr().out == ""


def test_imports_on_many_threads_leave_the_warnings_of_the_process_alone(package):
    names = [package(f"slow_{i}", "import time; time.sleep(0.01)") for i in range(8)]
    before, stdout = list(warnings.filters), sys.stdout
    threads = [threading.Thread(target=optional, args=(name, DATA)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before
    assert sys.stdout is stdout

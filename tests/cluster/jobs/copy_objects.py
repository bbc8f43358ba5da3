"""Copies all that is below one location of an object store to another, as the store's own tools would."""

import os
from concurrent.futures import ThreadPoolExecutor

from pyarrow.fs import FileSelector, FileType

from tidemark_persist.storage.storage import Storage

AT_ONCE = 8


def main() -> None:
    there, here = (Storage.at(os.environ[name], dict(os.environ)) for name in ("SOURCE", "TARGET"))
    found = there.fs.get_file_info(FileSelector("", recursive=True))
    paths = [each.path for each in found if each.type == FileType.File]

    def copy(path: str) -> None:
        content = there.read(path)
        assert content is not None, f"{path} is gone: something still writes"
        here.write(path, content)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(copy, paths))
    print(f"copied {len(paths)} objects")


if __name__ == "__main__":
    main()

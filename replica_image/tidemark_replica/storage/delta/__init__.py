"""Existing Delta tables as a source: each commit of a table at one time, exactly, as bindings of versions record.

    _delta_log ──commit_log──► commits after the bound version ──source.discover──► binding: table -> version
                                                                      │
    data files ◄──file_reads── what the commits add and remove ◄──source.stage
        └──reading──► rows with diffs ──► what did not change cancels ──► staged files

Read `source.py` first, then `followed_table.py` (which version comes next), `commit_log.py` (what a commit holds),
`definition.py` (what is pinned of the table, and what is refused), `physical_names.py` (column mapping),
`file_reads.py` (which rows of which files a change consists of), `reading.py` (from files to rows), `changes.py` (what
cancels) and `copies/` (first versions, and resnapshots, which are made beside the ticks).
"""

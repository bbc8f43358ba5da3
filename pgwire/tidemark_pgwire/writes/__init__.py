"""Rows of INSERT and COPY FROM, on their way to the gateway: one csv body for each transaction.

    INSERT ──► texts ──────────────┐
    COPY   ──► blocks ──► texts ───┴──► csv of the table's columns ──► body ──► the gateway, at the transaction's end

module  what it does
table   the table: its columns, in order
cells   the values of INSERT
blocks  COPY's data in text and csv, cut where rows end, and checked
binary_blocks, tuples, binary_values  COPY's data in binary: cut, where the fields are, their values as texts
rows    texts as csv, each as the gateway takes values of its column's type
body    the csv of a transaction, on disk where it is large
"""

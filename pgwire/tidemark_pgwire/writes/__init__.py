"""Rows of INSERT and COPY FROM, on their way to the gateway: one csv body for each transaction.

    INSERT ──► texts ──────────────┐
    COPY   ──► blocks ──► texts ───┴──► csv of the table's columns ──► body ──► the gateway, at the transaction's end

module  what it does
table   the table: its columns, in order
cells   the values of INSERT
blocks  COPY's data, cut where rows end, and checked
rows    texts as csv, each as the gateway takes values of its column's type
body    the csv of a transaction, on disk where it is large
"""

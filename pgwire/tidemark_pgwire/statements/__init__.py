"""The text of statements.

module        what it does
lexer         words, texts, names, comments and parameters, by PostgreSQL's rules or Spark's
commands      what a statement is: a query, or a command of the session
subjects      whether a query is about users' relations, the session or the catalogue
words         the tokens of a statement, taken from the left
definitions   CREATE, ALTER and DROP of views, indexes and tables
columns       the columns of CREATE TABLE
inserts       INSERT
by_key        DELETE, UPDATE
copy_options  the options of COPY, and its lines
binding       $1, $2 ... become literals
"""

-- Run in the database that is to have the table, as a superuser.
CREATE SCHEMA kept;
CREATE ROLE tidemark_writer LOGIN PASSWORD 'change-me';
GRANT USAGE, CREATE ON SCHEMA kept TO tidemark_writer;

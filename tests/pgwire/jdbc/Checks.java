import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/**
 * What a program sees through pgjdbc: `java Checks.java (URL held)...`. Each check prints a line for each server: which
 * one, its name, what it found. `held`: a query that does not end by itself. The password is in $PGPASSWORD.
 */
public class Checks {
    interface Check { Object run(Connection c) throws Exception; }

    static String url, held;
    static int server;

    static Connection connect(String... options) throws SQLException {
        Properties given = new Properties();
        given.setProperty("user", "anne");
        given.setProperty("password", System.getenv("PGPASSWORD"));
        for (String each : options) given.setProperty(each.split("=")[0], each.split("=")[1]);
        return DriverManager.getConnection(url, given);
    }

    static void check(String name, Check check, String... options) {
        String found;
        try (Connection c = connect(options)) {
            found = String.valueOf(check.run(c));
        } catch (Throwable error) {
            found = error(error);
        }
        System.out.println(server + "\t" + name + "\t" + found.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t"));
        System.out.flush();
    }

    static String error(Throwable error) {
        if (error instanceof BatchUpdateException && error.getCause() instanceof SQLException) error = error.getCause();
        if (error instanceof SQLException) return "error " + ((SQLException) error).getSQLState() + " " + error.getMessage();
        return "defect " + error;
    }

    /** What is refused, and whether the connection answers afterwards. */
    static String refused(Connection c, Check check) throws Exception {
        try {
            return "taken: " + check.run(c);
        } catch (SQLException error) {
            if (!c.getAutoCommit()) c.rollback();
            try (Statement s = c.createStatement(); ResultSet r = s.executeQuery("SELECT 1")) {
                r.next();
                return error(error) + " then " + r.getInt(1);
            }
        }
    }

    static String rows(ResultSet r) throws SQLException {
        StringBuilder found = new StringBuilder();
        int count = r.getMetaData().getColumnCount();
        while (r.next()) {
            for (int at = 1; at <= count; at++) found.append(at > 1 ? "|" : "").append(r.getString(at));
            found.append("\n");
        }
        return found.toString();
    }

    /** The named columns of each row. */
    static String rows(ResultSet r, String... names) throws SQLException {
        StringBuilder found = new StringBuilder();
        while (r.next()) {
            for (String name : names) found.append(r.getString(name)).append("|");
            found.append("\n");
        }
        return found.toString();
    }

    static String query(Connection c, String sql) throws SQLException {
        try (Statement s = c.createStatement()) { return rows(s.executeQuery(sql)); }
    }

    /** Each value by the method of its type, six times: later ones are a named statement, whose results are binary. */
    static String typed(Connection c) throws SQLException {
        TreeSet<String> found = new TreeSet<>();
        try (PreparedStatement s = c.prepareStatement("SELECT * FROM shop.kinds WHERE i >= ? ORDER BY i")) {
            for (int run = 0; run < 7; run++) {
                s.setInt(1, 0);
                StringBuilder text = new StringBuilder();
                try (ResultSet r = s.executeQuery()) {
                    while (r.next()) {
                        text.append(r.getBoolean(1)).append(r.wasNull()).append(' ').append(r.getShort(2)).append(' ');
                        text.append(r.getInt(3)).append(' ').append(r.getLong(4)).append(' ').append(r.getFloat(5));
                        text.append(' ').append(r.getDouble(6)).append(' ').append(r.getBigDecimal(7)).append(' ');
                        text.append(r.getString(8)).append(' ').append(r.getObject(9, LocalDate.class)).append(' ');
                        text.append(r.getObject(10, OffsetDateTime.class)).append(' ').append(r.getDate(9)).append(' ');
                        text.append(r.getTimestamp(10)).append('\n');
                        for (int at = 1; at <= 10; at++) {
                            Object value = r.getObject(at);
                            text.append(value == null ? "null" : value.getClass().getSimpleName() + ":" + value).append(' ');
                        }
                        text.append('\n');
                    }
                }
                found.add(text.toString());
            }
            return found.size() + " " + found.first() + ((org.postgresql.PGStatement) s).isUseServerPrepare();
        }
    }

    interface Setter { void set(PreparedStatement s) throws SQLException; }

    /** The rows for which a condition with one parameter holds, always the same ones. */
    static String found(Connection c, String condition, Setter setter) throws SQLException {
        TreeSet<String> found = new TreeSet<>();
        try (PreparedStatement s = c.prepareStatement("SELECT i FROM shop.kinds WHERE " + condition + " ORDER BY i")) {
            for (int run = 0; run < 7; run++) {
                setter.set(s);
                found.add(rows(s.executeQuery()));
            }
        }
        return String.join(" or ", found);
    }

    static String parameters(Connection c) throws Exception {
        StringBuilder all = new StringBuilder();
        Object[][] each = {
            {"yes = ?", (Setter) s -> s.setBoolean(1, true)}, {"small = ?", (Setter) s -> s.setShort(1, (short) -7)},
            {"i = ?", (Setter) s -> s.setInt(1, 2)}, {"i = ?", (Setter) s -> s.setLong(1, 2)},
            {"big = ?", (Setter) s -> s.setLong(1, 9007199254740993L)}, {"d > ?", (Setter) s -> s.setDouble(1, 0.5)},
            {"price = ?", (Setter) s -> s.setBigDecimal(1, new BigDecimal("12.50"))},
            {"name = ?", (Setter) s -> s.setString(1, "it's \\ \"ü\" $1 ?")},
            {"name = ?", (Setter) s -> s.setObject(1, "b")}, {"name = ?", (Setter) s -> s.setNull(1, Types.VARCHAR)},
            {"day = ?", (Setter) s -> s.setObject(1, LocalDate.of(2026, 1, 31))},
            {"day = ?", (Setter) s -> s.setDate(1, java.sql.Date.valueOf("2026-01-31"))},
            {"i = ?", (Setter) s -> s.setObject(1, 3)}, {"i IS NOT DISTINCT FROM ?::int", (Setter) s -> s.setNull(1, Types.INTEGER)},
        };
        for (Object[] one : each) {
            String line;
            try {
                line = found(c, (String) one[0], (Setter) one[1]);
            } catch (SQLException error) {
                line = error(error);
            }
            all.append(one[0]).append(": ").append(line.replace("\n", ",")).append("\n");
        }
        return all.toString();
    }

    /** Lists, by createArrayOf and as Java's own arrays. */
    static String arrays(Connection c) throws SQLException {
        Object[][] each = {
            {"yes = ANY (?)", "bool", new Object[] {true, null}}, {"small = ANY (?)", "int2", new Object[] {(short) -7, (short) 0}},
            {"i = ANY (?)", "int4", new Object[] {1, 2, null}}, {"i <> ALL (?)", "int4", new Object[] {0, 2}},
            {"i <> ALL (?)", "int4", new Object[] {0, null}}, {"i = ANY (?)", "int4", new Object[] {}},
            {"big = ANY (?)", "int8", new Object[] {9007199254740993L}}, {"d = ANY (?)", "float8", new Object[] {0.1, 1e300}},
            {"price = ANY (?)", "numeric", new Object[] {new BigDecimal("12.50"), new BigDecimal("-0.01")}},
            {"name = ANY (?)", "text", new Object[] {"it's \\ \"ü\" $1 ?", "", null}}, {"name <> ALL (?)", "varchar", new Object[] {"b"}},
            {"day = ANY (?)", "date", new Object[] {java.sql.Date.valueOf("2026-01-31"), null}},
            {"i = ANY (?)", null, new int[] {0, 3}}, {"big = ANY (?)", null, new long[] {0, -1}},
            {"name = ANY (?)", null, new String[] {"b", "{}"}}, {"i = ANY (?)", null, null},
        };
        StringBuilder all = new StringBuilder();
        for (Object[] one : each) {
            String line;
            try {
                line = found(c, (String) one[0], s -> {
                    if (one[1] != null) s.setArray(1, c.createArrayOf((String) one[1], (Object[]) one[2]));
                    else if (one[2] != null) s.setObject(1, one[2]);
                    else s.setNull(1, Types.ARRAY);
                });
            } catch (SQLException error) {
                line = error(error);
            }
            all.append(one[0]).append(": ").append(line.replace("\n", ",")).append("\n");
        }
        return all.toString();
    }

    static String otherParameters(Connection c) throws SQLException {
        OffsetDateTime begin = OffsetDateTime.of(2000, 1, 1, 0, 0, 0, 0, ZoneOffset.UTC);
        Setter[] each = {s -> s.setFloat(1, 1.25f), s -> s.setObject(1, begin), s -> s.setBytes(1, new byte[] {1})};
        String[] conditions = {"f = ?", "\"at\" = ?", "name = ?::text"};
        String all = "";
        for (int at = 0; at < each.length; at++) {
            try {
                all += found(c, conditions[at], each[at]) + ";";
            } catch (SQLException error) {
                all += error(error) + ";";
            }
        }
        return all;
    }

    static Object metadata(Connection c, String which) throws SQLException {
        DatabaseMetaData d = c.getMetaData();
        switch (which) {
            case "schemas": return rows(d.getSchemas(null, "shop"), "TABLE_SCHEM", "TABLE_CATALOG");
            case "tables": return rows(d.getTables(null, "shop", "%", new String[] {"TABLE", "VIEW"}),
                "TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
            case "columns": return rows(d.getColumns(null, "shop", "%", "%"), "TABLE_NAME", "COLUMN_NAME", "DATA_TYPE",
                "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "ORDINAL_POSITION", "IS_AUTOINCREMENT", "COLUMN_DEF");
            case "keys": return rows(d.getPrimaryKeys(null, "shop", "orders"), "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ", "PK_NAME")
                + rows(d.getPrimaryKeys(null, "shop", "pairs"), "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ", "PK_NAME");
            case "indexes": return rows(d.getIndexInfo(null, "shop", "orders", true, false),
                "TABLE_NAME", "NON_UNIQUE", "INDEX_NAME", "ORDINAL_POSITION", "COLUMN_NAME");
            case "types": {
                Set<String> wanted = Set.of("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "date", "timestamptz");
                StringBuilder found = new StringBuilder();
                try (ResultSet r = d.getTypeInfo()) {
                    while (r.next()) if (wanted.contains(r.getString(1)))
                        found.append(r.getString(1)).append(' ').append(r.getInt(2)).append(' ').append(r.getInt(3)).append('\n');
                }
                return found;
            }
            case "product": return d.getDatabaseProductName() + " " + d.getDatabaseMajorVersion() + " "
                + d.getMaxColumnNameLength();
            case "nothing": return rows(d.getImportedKeys(null, "shop", "orders")) + rows(d.getExportedKeys(null, "shop", "orders"))
                + rows(d.getProcedures(null, "shop", "%")) + rows(d.getFunctions(null, "shop", "%"))
                + rows(d.getUDTs(null, "shop", "%", null));
            default: return rows(d.getBestRowIdentifier(null, "shop", "orders", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME", "TYPE_NAME");
        }
    }

    static String described(Connection c) throws SQLException {
        StringBuilder found = new StringBuilder();
        try (PreparedStatement s = c.prepareStatement("SELECT * FROM shop.kinds WHERE i = ?")) {
            ResultSetMetaData m = s.getMetaData();
            for (int at = 1; at <= m.getColumnCount(); at++) {
                found.append(m.getColumnLabel(at)).append(' ').append(m.getColumnTypeName(at)).append(' ');
                found.append(m.getColumnType(at)).append(' ').append(m.getPrecision(at)).append(' ').append(m.getScale(at));
                found.append(' ').append(m.getColumnClassName(at)).append(' ').append(m.isSigned(at)).append('\n');
            }
            return found.toString() + s.getParameterMetaData().getParameterCount();
        }
    }

    static String inParts(Connection c) throws SQLException {
        c.setAutoCommit(false);
        StringBuilder found = new StringBuilder();
        String sql = "SELECT i, name FROM shop.kinds WHERE i >= ? ORDER BY i";
        for (int run = 0; run < 7; run++) {
            try (PreparedStatement one = c.prepareStatement(sql); PreparedStatement two = c.prepareStatement(sql)) {
                one.setFetchSize(1);
                two.setFetchSize(2);
                one.setInt(1, 0);
                two.setInt(1, 2);
                ResultSet first = one.executeQuery(), second = two.executeQuery();
                while (first.next()) found.append(first.getInt(1)).append(second.next() ? second.getInt(1) : "-").append(' ');
            }
        }
        c.commit();
        return found.toString();
    }

    static final String INSERT = "INSERT INTO shop.kinds (yes, small, i, big, f, d, price, name, day, at) VALUES (?,?,?,?,?,?,?,?,?,?)";

    static void fill(PreparedStatement s, int number) throws SQLException {
        s.setBoolean(1, number % 2 == 0);
        s.setShort(2, (short) -number);
        s.setInt(3, number);
        s.setLong(4, 1L << 40);
        s.setFloat(5, number / 4f);
        s.setDouble(6, number / 3.0);
        s.setBigDecimal(7, new BigDecimal(number).movePointLeft(2));
        if (number % 5 == 0) s.setNull(8, Types.VARCHAR);
        else s.setString(8, "it's \\ ü\n\t" + number);
        s.setObject(9, LocalDate.of(2026, 1, 1).plusDays(number));
        s.setObject(10, OffsetDateTime.of(2026, 1, 1, 12, 0, 0, 123456000, ZoneOffset.ofHours(2)));
    }

    static String batch(Connection c, boolean block) throws SQLException {
        c.setAutoCommit(!block);
        try (PreparedStatement s = c.prepareStatement(INSERT)) {
            for (int at = 0; at < 25; at++) {
                fill(s, at);
                s.addBatch();
            }
            int[] counts = s.executeBatch();
            if (block) c.commit();
            return Arrays.toString(counts);
        }
    }

    static String canceled(Connection c, boolean byTime) throws Exception {
        AtomicBoolean done = new AtomicBoolean();
        try (Statement s = c.createStatement()) {
            if (byTime) s.setQueryTimeout(1);
            Thread other = new Thread(() -> {
                try {
                    while (!done.get() && !byTime) {
                        Thread.sleep(100);
                        s.cancel();
                    }
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
            });
            other.start();
            String found = "not canceled";
            try {
                s.execute(held);
            } catch (SQLException error) {
                found = error.getSQLState();
            }
            done.set(true);
            other.join();
            return found + " then " + query(c, "SELECT 1");
        }
    }

    static String transaction(Connection c) throws SQLException {
        c.setAutoCommit(false);
        StringBuilder found = new StringBuilder();
        try (Statement s = c.createStatement()) {
            found.append(s.executeUpdate("INSERT INTO shop.orders VALUES (1, 'a')"));
            Savepoint point = c.setSavepoint("here");
            found.append(s.executeUpdate("INSERT INTO shop.orders VALUES (2, 'b')"));
            c.rollback(point);
            found.append(s.executeUpdate("INSERT INTO shop.orders VALUES (3, 'c'), (4, 'd')"));
            c.releaseSavepoint(c.setSavepoint());
            c.commit();
            s.executeUpdate("INSERT INTO shop.orders VALUES (5, 'e')");
            c.rollback();
            c.setAutoCommit(true);
            found.append(s.executeUpdate("UPDATE shop.orders SET name = 'A' WHERE id = 1"));
            found.append(s.executeUpdate("DELETE FROM shop.orders WHERE id = 3"));
            found.append(s.executeUpdate("DELETE FROM shop.orders WHERE id = 99"));
        }
        return found.toString();
    }

    static String session(Connection c) throws SQLException {
        StringBuilder found = new StringBuilder();
        found.append(c.isValid(60)).append(c.getCatalog()).append(c.getAutoCommit());
        c.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
        c.setClientInfo("ApplicationName", "checks");
        c.setNetworkTimeout(Runnable::run, 600_000);
        found.append(c.getClientInfo("ApplicationName")).append(query(c, "SHOW application_name"));
        c.setSchema("shop");
        found.append(c.isReadOnly()).append(c.getHoldability()).append(c.nativeSQL("{fn now()}")).append(c.getWarnings());
        return found.toString();
    }

    static String readOnly(Connection c, boolean block) throws Exception {
        c.setReadOnly(true);
        c.setAutoCommit(!block);
        String first = refused(c, x -> x.createStatement().executeUpdate("INSERT INTO shop.orders VALUES (9, 'x')"));
        if (block) c.rollback();
        c.setReadOnly(false);
        return first + " " + c.isReadOnly();
    }

    static String several(Connection c) throws SQLException {
        StringBuilder found = new StringBuilder();
        try (Statement s = c.createStatement()) {
            boolean rows = s.execute("SELECT 1 AS a; INSERT INTO shop.plain VALUES (7, 'x'); SELECT 'b' AS c");
            while (rows || s.getUpdateCount() != -1) {
                found.append(rows ? rows(s.getResultSet()) : s.getUpdateCount() + "\n");
                rows = s.getMoreResults();
            }
        }
        return found.toString();
    }

    static String scrolled(Connection c) throws SQLException {
        try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
            s.setMaxRows(3);
            ResultSet r = s.executeQuery("SELECT i FROM shop.kinds WHERE i >= 0 ORDER BY i");
            r.last();
            int last = r.getRow();
            r.absolute(2);
            return last + " " + r.getInt(1) + " " + r.previous() + r.getInt("i");
        }
    }

    static String copied(Connection c) throws Exception {
        CopyManager copies = c.unwrap(PGConnection.class).getCopyAPI();
        StringWriter out = new StringWriter();
        long sent = copies.copyOut("COPY (SELECT i, name FROM shop.kinds WHERE i >= 0 ORDER BY i) TO STDOUT (FORMAT csv)", out);
        long taken = copies.copyIn("COPY shop.plain (id, name) FROM STDIN (FORMAT csv)", new StringReader("1,a\n2,\"b\"\"c\"\n3,\n"));
        return sent + " " + out + taken;
    }

    static String declared(Connection c) throws SQLException {
        c.setAutoCommit(false);
        try (Statement s = c.createStatement()) {
            s.execute("DECLARE few CURSOR FOR SELECT i FROM shop.kinds WHERE i >= 0 ORDER BY i");
            String found = rows(s.executeQuery("FETCH 2 FROM few")) + rows(s.executeQuery("FETCH ALL FROM few"));
            c.commit();
            return found;
        }
    }

    static String edited(Connection c) throws SQLException {
        c.setAutoCommit(false);
        try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE)) {
            ResultSet r = s.executeQuery("SELECT id, name FROM shop.orders WHERE id = 1");
            r.next();
            r.updateString("name", "edited");
            r.updateRow();
            String found = r.getLong(1) + r.getString(2);
            c.rollback();
            return found;
        }
    }

    public static void main(String[] given) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        for (server = 0; server < given.length / 2; server++) {
            url = given[2 * server];
            held = given[2 * server + 1];
            checks();
        }
    }

    static void checks() {
        for (String which : "schemas tables columns keys indexes types product nothing identifier".split(" "))
            check("metadata of " + which, c -> metadata(c, which));
        check("session", Checks::session);
        check("values, by their types", Checks::typed);
        check("values in text", Checks::typed, "binaryTransfer=false");
        check("values in simple queries", c -> rows(c.createStatement().executeQuery("SELECT * FROM shop.kinds WHERE i >= 0 ORDER BY i")), "preferQueryMode=simple");
        check("parameters", Checks::parameters);
        check("parameters, named from the first time", Checks::parameters, "prepareThreshold=-1");
        check("parameters in simple queries", Checks::parameters, "preferQueryMode=simple");
        check("other parameters", Checks::otherParameters);
        check("arrays", Checks::arrays);
        check("arrays, named from the first time", Checks::arrays, "prepareThreshold=-1");
        check("arrays in text", Checks::arrays, "binaryTransfer=false");
        check("arrays in simple queries", Checks::arrays, "preferQueryMode=simple");
        check("columns of a statement", Checks::described);
        check("parts", Checks::inParts);
        check("parts, adaptive", Checks::inParts, "adaptiveFetch=true", "maxResultBuffer=1M");
        check("a cursor", Checks::declared);
        check("scrolled", Checks::scrolled);
        check("copies", Checks::copied);
        check("several statements", Checks::several);
        check("a batch", c -> batch(c, false));
        check("a batch in a transaction", c -> batch(c, true));
        check("a batch as statements of many rows", c -> batch(c, false), "reWriteBatchedInserts=true");
        check("a batch of a session with savepoints", c -> batch(c, true), "autosave=always");
        check("a transaction", Checks::transaction);
        check("read only", c -> readOnly(c, false), "readOnlyMode=always");
        check("a read only transaction", c -> readOnly(c, true));
        check("canceled", c -> canceled(c, false));
        check("canceled by a time", c -> canceled(c, true));
        check("no such relation", c -> refused(c, x -> x.createStatement().executeQuery("SELECT * FROM shop.nowhere WHERE i = 1")));
        check("a wrong statement", c -> refused(c, x -> x.createStatement().executeQuery("SELEC 1")));
        check("a wrong statement in a transaction", c -> { c.setAutoCommit(false); return refused(c, x -> x.createStatement().execute("SELEC 1")); });
        check("keys that were made", c -> refused(c, x -> x.prepareStatement("INSERT INTO shop.orders VALUES (8, 'x')", Statement.RETURN_GENERATED_KEYS).executeUpdate()));
        check("a row that is edited", Checks::edited);
        check("a wrong password", c -> DriverManager.getConnection(url, "anne", "wrong"));
    }
}

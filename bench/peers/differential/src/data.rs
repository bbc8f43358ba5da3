//! The files that a run is given, and the rows that it gives back: CSV of integers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

pub type Line = [i64; 8]; // ok sk quantity price discount tax flags shipdate
pub type Order = [i64; 5]; // ok ck orderdate priority total
pub type Customer = [i64; 3]; // ck nk building
pub type Pair = [i64; 2]; // supplier: sk nk; nation: nk rk

/// Everything of one run, in memory before the clock starts.
pub struct Data {
    pub lines: Vec<Line>,
    pub orders: Vec<Order>,
    pub customers: Vec<Customer>,
    pub suppliers: Vec<Pair>,
    pub nations: Vec<Pair>,
    pub rounds: Vec<Round>,
}

/// Lines that go and lines that come.
pub struct Round {
    pub rows: usize,
    pub going: Vec<Line>,
    pub coming: Vec<Line>,
}

impl Data {
    pub fn read(folder: &Path) -> Data {
        let sizes: Vec<[i64; 1]> = rows(folder, "sizes");
        let going = by_round(rows(folder, "going"), sizes.len());
        let coming = by_round(rows(folder, "coming"), sizes.len());
        let mut lines: Vec<Line> = rows(folder, "lineitem");
        lines.extend(going.iter().flatten());
        let rounds = sizes.iter().zip(going).zip(coming);
        Data {
            lines,
            orders: rows(folder, "orders"),
            customers: rows(folder, "customer"),
            suppliers: rows(folder, "supplier"),
            nations: rows(folder, "nation"),
            rounds: rounds
                .map(|((size, going), coming)| Round { rows: size[0] as usize, going, coming })
                .collect(),
        }
    }
}

/// The rows of a file with a header.
fn rows<const N: usize>(folder: &Path, name: &str) -> Vec<[i64; N]> {
    let path = folder.join(format!("{name}.csv"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let row = |line: &str| {
        let mut row = [0; N];
        let mut cells = line.split(',');
        for cell in row.iter_mut() {
            let text = cells.next().expect("a cell for every column");
            *cell = text.trim_matches('"').parse().expect("an integer");
        }
        row
    };
    text.lines().skip(1).map(row).collect()
}

/// The first column is the round.
fn by_round(lines: Vec<[i64; 9]>, rounds: usize) -> Vec<Vec<Line>> {
    let mut found = vec![vec![]; rounds];
    for line in lines {
        found[line[0] as usize].push(line[1..].try_into().expect("eight columns"));
    }
    found
}

/// Writes the result, each row as often as it is there; panics for a row that is there less than never.
pub fn write(folder: &Path, name: &str, result: &BTreeMap<Vec<i64>, isize>) {
    let mut file = fs::File::create(folder.join(format!("{name}.csv"))).expect("a file for the result");
    for (row, count) in result {
        assert!(*count >= 0, "{row:?} is there {count} times");
        let text: Vec<String> = row.iter().map(i64::to_string).collect();
        for _ in 0..*count {
            writeln!(file, "{}", text.join(",")).expect("room for the result");
        }
    }
}

//! One query in differential-dataflow: `tidemark-peer-differential FOLDER QUERY WORKERS`.
//!
//! Reads the tables into memory, then times (milliseconds, as lines of JSON) their way through the dataflow, and each
//! round of changes. Its results are files of FOLDER.

mod data;
mod queries;

use data::Data;
use differential_dataflow::input::{Input, InputSession};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

type Session<D> = InputSession<u32, D, isize>;
const LINES_PER_TURN: usize = 65536;

struct Inputs {
    lines: Session<data::Line>,
    orders: Session<data::Order>,
    customers: Session<data::Customer>,
    suppliers: Session<data::Pair>,
    nations: Session<data::Pair>,
}

impl Inputs {
    fn advance_to(&mut self, time: u32) {
        self.lines.advance_to(time);
        self.orders.advance_to(time);
        self.customers.advance_to(time);
        self.suppliers.advance_to(time);
        self.nations.advance_to(time);
        self.lines.flush();
        self.orders.flush();
        self.customers.flush();
        self.suppliers.flush();
        self.nations.flush();
    }
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// CPU milliseconds of the process so far.
fn cpu() -> f64 {
    const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // the call only writes into the struct that it is given
    unsafe { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.seconds as f64 * 1e3 + time.nanoseconds as f64 * 1e-6
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, query, workers] = &arguments[..] else { panic!("FOLDER QUERY WORKERS") };
    let (folder, query) = (PathBuf::from(folder), query.clone());
    let workers: usize = workers.parse().expect("a number of workers");
    let data = Arc::new(Data::read(&folder));
    let together = Arc::new(Barrier::new(workers));
    let result = Arc::new(Mutex::new(BTreeMap::<Vec<i64>, isize>::new()));

    timely::execute(timely::Config::process(workers), move |worker| {
        let index = worker.index();
        let changes = Rc::new(RefCell::new(Vec::<(Vec<i64>, isize)>::new()));
        let seen = changes.clone();
        let (mut inputs, probe) = worker.dataflow::<u32, _, _>(|scope| {
            let (lines_in, lines) = scope.new_collection();
            let (orders_in, orders) = scope.new_collection();
            let (customers_in, customers) = scope.new_collection();
            let (suppliers_in, suppliers) = scope.new_collection();
            let (nations_in, nations) = scope.new_collection();
            let tables = queries::Tables { lines, orders, customers, suppliers, nations };
            let rows = queries::query(&query, tables);
            let (probe, _) = rows.inspect(move |(row, _, diff)| seen.borrow_mut().push((row.clone(), *diff))).probe();
            let inputs = Inputs {
                lines: lines_in,
                orders: orders_in,
                customers: customers_in,
                suppliers: suppliers_in,
                nations: nations_in,
            };
            (inputs, probe)
        });
        let collect = |name: &str| {
            for (row, diff) in changes.borrow_mut().drain(..) {
                *result.lock().unwrap().entry(row).or_default() += diff;
            }
            together.wait();
            if index == 0 {
                let mut rows = result.lock().unwrap();
                rows.retain(|_, count| *count != 0);
                data::write(&folder, name, &rows);
            }
            together.wait();
        };

        together.wait();
        let (begin, spent) = (Instant::now(), cpu());
        data.nations.iter().skip(index).step_by(workers).for_each(|row| inputs.nations.insert(*row));
        data.suppliers.iter().skip(index).step_by(workers).for_each(|row| inputs.suppliers.insert(*row));
        data.customers.iter().skip(index).step_by(workers).for_each(|row| inputs.customers.insert(*row));
        data.orders.iter().skip(index).step_by(workers).for_each(|row| inputs.orders.insert(*row));
        for (number, row) in data.lines.iter().skip(index).step_by(workers).enumerate() {
            inputs.lines.insert(*row);
            if number % LINES_PER_TURN == LINES_PER_TURN - 1 {
                worker.step();
            }
        }
        inputs.advance_to(1);
        worker.step_while(|| probe.less_than(&1));
        together.wait();
        if index == 0 {
            println!("{{\"wall\": {}, \"cpu\": {}}}", begin.elapsed().as_secs_f64() * 1e3, cpu() - spent);
        }
        collect("hydrated");

        for (number, round) in data.rounds.iter().enumerate() {
            let time = number as u32 + 2;
            together.wait();
            let (begin, spent) = (Instant::now(), cpu());
            round.going.iter().skip(index).step_by(workers).for_each(|row| inputs.lines.remove(*row));
            round.coming.iter().skip(index).step_by(workers).for_each(|row| inputs.lines.insert(*row));
            inputs.advance_to(time);
            worker.step_while(|| probe.less_than(&time));
            together.wait();
            if index == 0 {
                let wall = begin.elapsed().as_secs_f64() * 1e3;
                println!("{{\"rows\": {}, \"wall\": {wall}, \"cpu\": {}}}", round.rows, cpu() - spent);
            }
        }
        collect("final");
    })
    .expect("workers that run to the end");
}

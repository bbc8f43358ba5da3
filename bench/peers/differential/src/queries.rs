//! The queries, as one would write them for differential-dataflow: sums are kept in the difference.

use crate::data::{Customer, Line, Order, Pair};
use differential_dataflow::difference::{Abelian, IsZero, Monoid, Multiply, Semigroup};
use differential_dataflow::operators::CountTotal;
use differential_dataflow::VecCollection;
use serde::{Deserialize, Serialize};

const NEWEST_SHIPPED: i64 = 10471; // 1998-09-02
const SPRING_1995: i64 = 9204; // 1995-03-15
const YEAR_1994: std::ops::Range<i64> = 8766..9131;
const ASIA: i64 = 2;
const LARGE: isize = 27000; // 270 pieces

pub type Collection<'scope, D> = VecCollection<'scope, u32, D, isize>;

/// Six sums as one difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sums([i64; 6]);

impl IsZero for Sums {
    fn is_zero(&self) -> bool {
        self.0 == [0; 6]
    }
}

impl Semigroup for Sums {
    fn plus_equals(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

impl Monoid for Sums {
    fn zero() -> Self {
        Sums([0; 6])
    }
}

impl Abelian for Sums {
    fn negate(&mut self) {
        self.0 = self.0.map(|sum| -sum);
    }
}

impl Multiply<isize> for Sums {
    type Output = Sums;
    fn multiply(self, by: &isize) -> Sums {
        Sums(self.0.map(|sum| sum * *by as i64))
    }
}

pub struct Tables<'scope> {
    pub lines: Collection<'scope, Line>,
    pub orders: Collection<'scope, Order>,
    pub customers: Collection<'scope, Customer>,
    pub suppliers: Collection<'scope, Pair>,
    pub nations: Collection<'scope, Pair>,
}

pub fn query<'scope>(name: &str, tables: Tables<'scope>) -> Collection<'scope, Vec<i64>> {
    match name {
        "q1" => q1(tables),
        "q3" => q3(tables),
        "q5" => q5(tables),
        "q18" => q18(tables),
        _ => panic!("there is no query {name}"),
    }
}

fn q1(tables: Tables) -> Collection<Vec<i64>> {
    let sums = |[_, _, quantity, price, discount, tax, flags, _]: Line| {
        let discounted = price * (100 - discount);
        Some((flags, Sums([quantity, price, discounted, discounted * (100 + tax), discount, 1])))
    };
    let shipped = tables.lines.filter(|line| line[7] <= NEWEST_SHIPPED).explode(sums);
    shipped.count_total().map(|(flags, Sums(s))| vec![flags, s[0], s[1], s[2], s[3], s[5]])
}

fn q3(tables: Tables) -> Collection<Vec<i64>> {
    let building = tables.customers.filter(|c| c[2] == 1).map(|c| c[0]);
    let orders = tables.orders.filter(|o| o[2] < SPRING_1995).map(|o| (o[1], (o[0], o[2], o[3])));
    let orders = orders.semijoin(building).map(|(_, (ok, date, priority))| (ok, (date, priority)));
    let lines = tables.lines.filter(|l| l[7] > SPRING_1995).map(|l| (l[0], revenue(&l)));
    orders
        .join_map(lines, |ok, (date, priority), revenue| ((*ok, *date, *priority), *revenue))
        .explode(|(group, revenue)| Some((group, (revenue, 1isize))))
        .count_total()
        .map(|((ok, date, priority), (revenue, _))| vec![ok, date, priority, revenue as i64])
}

fn q5(tables: Tables) -> Collection<Vec<i64>> {
    let nations = tables.nations.filter(|n| n[1] == ASIA).map(|n| n[0]);
    let suppliers = tables.suppliers.map(|s| (s[1], s[0])).semijoin(nations.clone());
    let suppliers = suppliers.map(|(nk, sk)| ((sk, nk), ()));
    let customers = tables.customers.map(|c| (c[1], c[0])).semijoin(nations).map(|(nk, ck)| (ck, nk));
    let orders = tables.orders.filter(|o| YEAR_1994.contains(&o[2])).map(|o| (o[1], o[0]));
    let orders = orders.join_map(customers, |_, ok, nk| (*ok, *nk));
    let lines = tables.lines.map(|l| (l[0], (l[1], revenue(&l))));
    lines
        .join_map(orders, |_, (sk, revenue), nk| ((*sk, *nk), *revenue))
        .join_map(suppliers, |(_, nk), revenue, ()| (*nk, *revenue))
        .explode(|(nk, revenue)| Some((nk, (revenue, 1isize))))
        .count_total()
        .map(|(nk, (revenue, _))| vec![nk, revenue as i64])
}

fn q18(tables: Tables) -> Collection<Vec<i64>> {
    let large = tables.lines.explode(|l| Some((l[0], (l[2] as isize, 1isize)))).count_total();
    let large = large.filter(|(_, (quantity, _))| *quantity > LARGE).map(|(ok, (quantity, _))| (ok, quantity as i64));
    let orders = tables.orders.map(|o| (o[0], (o[1], o[2], o[4])));
    orders
        .join_map(large, |ok, (ck, date, total), quantity| (*ck, (*ok, *date, *total, *quantity)))
        .join_map(tables.customers.map(|c| (c[0], ())), |ck, (ok, date, total, quantity), ()| {
            vec![*ck, *ok, *date, *total, *quantity]
        })
}

fn revenue(line: &Line) -> isize {
    (line[3] * (100 - line[4])) as isize
}

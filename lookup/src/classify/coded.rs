//! Patterns translated to code: no pattern is read from memory, and none asks for more than it has to.
//!
//! As Vlaeminck et al. did by hand (Implementation of network systems using network processor technology, CDES'05,
//! section VI). Each condition of a pattern is an instruction or a few, with its constants in them. The first one of a
//! pattern branches away when it holds, to code out of the line that checks the others, so that a pattern that does
//! not match falls through. On a host it is a list of conditions; what it would cost as code is what it tallies.

use tally::{Branch, Op, Tally};
use wire::Family;

use super::pattern::{AddressSpan, Admit, Pattern, PortSpan};
use super::{Classifier, Header, Position};

/// Patterns as conditions.
#[derive(Clone, Debug)]
pub struct Coded {
    rows: Vec<Row>,
}

/// A pattern, and its conditions, the most telling first.
#[derive(Clone, Debug)]
struct Row {
    pattern: Pattern,
    checks: Vec<Check>,
}

/// A condition, and the instructions that it takes as code, the branch included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Check {
    condition: Condition,
    instructions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Destination,
    Dports,
    Source,
    Sports,
    Protocols,
    /// All that is seldom asked for, together.
    Rest,
}

impl Coded {
    /// Translates the patterns.
    pub fn new(patterns: &[Pattern]) -> Coded {
        let row = |pattern: &Pattern| Row { pattern: pattern.clone(), checks: checks(pattern) };
        Coded { rows: patterns.iter().map(row).collect() }
    }
}

fn checks(pattern: &Pattern) -> Vec<Check> {
    let addresses = |spans: &Option<Vec<AddressSpan>>| {
        spans.as_ref().map(|spans| spans.iter().map(of_address).sum::<u32>().max(1))
    };
    let ports = |spans: &[PortSpan]| (!spans.is_empty()).then(|| spans.iter().map(of_ports).sum());
    // A protocol: compare with a constant of 8 bits, branch.
    let protocols = (!pattern.protocols.is_empty()).then_some(2 * pattern.protocols.len() as u32);
    let mut checks: Vec<Check> = [
        (Condition::Destination, addresses(&pattern.destination)),
        (Condition::Dports, ports(&pattern.dports)),
        (Condition::Source, addresses(&pattern.source)),
        (Condition::Sports, ports(&pattern.sports)),
        (Condition::Protocols, protocols),
        (Condition::Rest, Some(rest(pattern)).filter(|rest| *rest > 0)),
    ]
    .into_iter()
    .filter_map(|(condition, cost)| cost.map(|instructions| Check { condition, instructions }))
    .collect();
    if checks.is_empty() {
        // It always matches: a branch.
        checks.push(Check { condition: Condition::Rest, instructions: 1 });
    }
    checks
}

/// Instructions of an address's condition: a constant of up to 16 bits is one, of up to 32 two; a prefix is compared with
/// the address shifted right, in one instruction of shifter and ALU; any other span takes two compares. Then the
/// branch. An IPv6 address is four words.
fn of_address(span: &AddressSpan) -> u32 {
    let (width, words) = if span.v6 { (128, 4) } else { (32, 1) };
    let differ = span.first ^ span.last;
    let free = 128 - differ.leading_zeros();
    let is_prefix = differ.count_ones() == free && span.first & differ == 0;
    match (is_prefix, span.v6) {
        (true, false) => {
            if width - free <= 16 {
                3
            } else {
                4
            }
        }
        (true, true) => 4 * (width - free).div_ceil(32).max(1),
        (false, _) => words * 8,
    }
}

/// Instructions of a port's condition: a constant, compare, branch; a range takes one more compare and its length.
fn of_ports(span: &PortSpan) -> u32 {
    if span.first == span.last { 3 } else { 5 }
}

/// Instructions of the other conditions: a mask of bits and a branch each.
fn rest(pattern: &Pattern) -> u32 {
    let any = Pattern::default();
    let asked = [
        pattern.from != any.from,
        pattern.to != any.to,
        !pattern.ingress.is_empty(),
        !pattern.egress.is_empty(),
        pattern.source_macs.is_some(),
        pattern.v4 != Admit::Yes,
        pattern.v6 != Admit::Yes,
        !pattern.icmp.is_empty(),
        pattern.tcp_mask != 0 || pattern.tcp_value != 0,
        pattern.dscp != any.dscp,
        pattern.sets_mask != 0 || pattern.sets_value != 0,
    ];
    2 * asked.into_iter().filter(|asked| *asked).count() as u32
}

impl Row {
    fn holds(&self, condition: Condition, header: &Header) -> bool {
        let address = |spans: Option<&[AddressSpan]>, address: u128| {
            let v6 = header.family == Family::V6;
            let within = |span: &AddressSpan| span.v6 == v6 && span.first <= address && address <= span.last;
            spans.is_none_or(|spans| spans.iter().any(within))
        };
        let port =
            |spans: &[PortSpan], port: u16| spans.iter().any(|span| span.first <= port && port <= span.last);
        match condition {
            Condition::Destination => address(self.pattern.destination.as_deref(), header.destination),
            Condition::Dports => port(&self.pattern.dports, header.dport),
            Condition::Source => address(self.pattern.source.as_deref(), header.source),
            Condition::Sports => port(&self.pattern.sports, header.sport),
            Condition::Protocols => self.pattern.protocols.contains(&header.protocol),
            Condition::Rest => self.pattern.matches(header),
        }
    }

    fn all_hold(&self, header: &Header) -> bool {
        header.family != Family::Other && self.checks.iter().all(|check| self.holds(check.condition, header))
    }
}

impl Classifier for Coded {
    fn classify(&self, header: &Header) -> Option<Position> {
        let found = self.rows.iter().position(|row| row.all_hold(header))?;
        u32::try_from(found).ok()
    }

    fn classify_tallied(&self, header: &Header, tally: &mut dyn Tally) -> Option<Position> {
        if header.family == Family::Other {
            // The code is not entered: `parse` has told the families apart.
            return None;
        }
        for (number, row) in self.rows.iter().enumerate() {
            let mut held = true;
            for (place, check) in row.checks.iter().enumerate() {
                held = row.holds(check.condition, header);
                tally.instructions(check.instructions - 1);
                // In the line, the branch is taken when the condition holds; out of it, when it does not.
                if held == (place == 0) {
                    tally.branch(Branch::Taken);
                } else {
                    tally.execute(Op::Branch, 1);
                }
                if !held {
                    break;
                }
            }
            if held {
                return u32::try_from(number).ok();
            }
        }
        None
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(self.rows.as_slice())
            + self.rows.iter().map(|row| size_of_val(row.checks.as_slice())).sum::<usize>()
    }

    fn region_bytes(&self) -> u64 {
        0
    }

    fn program(&self) -> u32 {
        // And for each pattern its number, and the branch to what follows from a match.
        let checks =
            self.rows.iter().flat_map(|row| &row.checks).map(|check| check.instructions).sum::<u32>();
        checks + 2 * self.rows.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: u32, last: u32) -> AddressSpan {
        AddressSpan { v6: false, first: first.into(), last: last.into() }
    }

    #[test]
    fn addresses_cost_what_their_constants_do() {
        assert_eq!(of_address(&span(0x0a00_0000, 0x0aff_ffff)), 3, "10.0.0.0/8");
        assert_eq!(of_address(&span(0xc0a8_0100, 0xc0a8_01ff)), 4, "192.168.1.0/24");
        assert_eq!(of_address(&span(0xc0a8_0101, 0xc0a8_0101)), 4, "one address");
        assert_eq!(of_address(&span(1, 6)), 8, "no prefix");
        assert_eq!(of_address(&span(0, u32::MAX)), 3, "all");
        let v6 = AddressSpan { v6: true, first: 0x2001 << 112, last: (0x2001 << 112) | (u128::MAX >> 64) };
        assert_eq!(of_address(&v6), 8, "two words of a /64");
    }

    #[test]
    fn a_pattern_that_does_not_match_falls_through_its_first_condition() {
        let coded = Coded::new(&[
            Pattern {
                dports: vec![PortSpan { first: 80, last: 80 }],
                protocols: vec![6],
                ..Pattern::default()
            },
            Pattern::default(),
        ]);
        let mut count = tally::Count::default();
        let header = Header { dport: 443, protocol: 6, family: Family::V4, ..Header::default() };
        assert_eq!(coded.classify_tallied(&header, &mut count), Some(1));
        // Three for the port, and one that always branches.
        assert_eq!(count.executed_total(), 4);
        assert_eq!(coded.program(), 3 + 2 + 1 + 4);
    }

    #[test]
    fn flags_outside_their_mask_are_never_shown() {
        let coded = Coded::new(&[Pattern { tcp_value: 1, ..Pattern::default() }]);
        for tcp_flags in [0, 1] {
            assert_eq!(coded.classify(&Header { tcp_flags, family: Family::V4, ..Header::default() }), None);
        }
    }
}

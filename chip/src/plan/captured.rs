//! Captures as traffic for a chip: the frames that replay would play, where and when it would play them.

use std::sync::{Arc, OnceLock};

use dataplane::Tables;
use replay::Captures;
use replay::number::number;
use wire::Nanos;
use wire::ethernet::Header;

use crate::host::{Entry, Traffic, View};

/// Problems of captures; known when the captures have been played.
pub type Problems = Arc<OnceLock<Vec<Problem>>>;

/// Something that is wrong with a capture.
#[derive(Clone, Debug)]
pub enum Problem {
    /// The file is truncated.
    Short(String),
    /// The file is damaged.
    Unreadable(String),
    /// The capture spans more time than the chip's clocks can be counted over.
    Long(String),
}

/// Captures, and the tables by which it is told where their packets come in.
pub(super) struct Captured {
    captures: Captures,
    tables: Tables,
    start: Nanos,
    last: Nanos,
    /// Number of packets after `last`, by capture.
    late: Vec<u64>,
    problems: Problems,
}

impl Captured {
    /// Captures whose packets after `last` come in when the chip's time ends.
    pub(super) fn new(captures: Captures, tables: Tables, last: Nanos, problems: Problems) -> Captured {
        let late = vec![0; captures.sources().len()];
        Captured { start: captures.start(), captures, tables, last, late, problems }
    }

    /// Says what is wrong, once.
    fn close(&self) {
        self.problems.get_or_init(|| {
            let mut problems = Vec::new();
            for (source, late) in self.captures.sources().iter().zip(&self.late) {
                if let Some(problem) = &source.problem {
                    problems.push(Problem::Unreadable(problem.to_string()));
                }
                if let Some(cut) = source.cut_short() {
                    problems.push(Problem::Short(format!("{} is {cut}", source.path.display())));
                }
                if *late > 0 {
                    problems.push(Problem::Long(format!(
                        "{} spans more time than is modelled of this chip, {} seconds: {}, and seconds and rates are \
                         not the capture's",
                        source.path.display(),
                        number(self.last.since(self.start).0 / 1_000_000_000),
                        match late {
                            1 => "1 packet that comes later is taken to come then".to_owned(),
                            many => format!("{} packets that come later are taken to come then", number(*many)),
                        }
                    )));
                }
            }
            problems
        });
    }
}

impl Traffic for Captured {
    fn peek(&mut self) -> Option<Nanos> {
        let next = self.captures.peek();
        if next.is_none() {
            self.close();
        }
        next
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let Some(packet) = self.captures.next(&self.tables) else {
            self.close();
            return None;
        };
        self.late[packet.source] += u64::from(packet.at > self.last);
        bytes.extend_from_slice(packet.captured);
        let own = Header::of(packet.captured).map(Header::dst);
        let taken = Header::of(packet.bytes).map(Header::dst);
        Some(Entry {
            at: packet.at,
            ingress: packet.ingress,
            original_len: packet.original_len,
            receiver: taken.filter(|taken| Some(*taken) != own),
            view: if packet.may_be_inside() { View::Inside } else { View::Sent },
        })
    }
}

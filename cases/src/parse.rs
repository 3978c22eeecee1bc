//! Parser of a case file: title, policy and steps, line by line.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use dataplane::nat::Endpoint;
use dataplane::{Reason, Verdict};
use ipnet::IpNet;
use policy::model::{OTHER_ZONE, SELF_ZONE};
use policy::{Diagnostic, Policy};
use wire::Nanos;
use wire::header::Protocol;

use super::fault::{Fault, What};
use super::packet;
use super::word::{Values, Words};
use super::{Case, Counter, Departure, Fate, In, Out, PortStep, PortWish, SetStep, SetWish, Step};

/// Reason for refusing a case.
#[derive(Debug)]
pub enum Unusable {
    /// Faults of the file.
    Faults(Vec<Fault>),
    /// Errors of the policy.
    Policy(Vec<Diagnostic>),
}

/// Largest number of packets received, all lines together.
const MOST_PACKETS: u64 = 1_000_000;

/// Reader of a file's text.
pub type Open = fn(&Path) -> io::Result<String>;

/// Reads a case. `path` is the file of the text: policies are found relative to it, and read with `open`.
pub fn read(text: &str, path: &Path, open: Open) -> Result<Case, Unusable> {
    let mut reader = Reader {
        path,
        open,
        title: String::new(),
        policy: None,
        interfaces: Vec::new(),
        steps: Vec::new(),
        packets: 0,
        now: Nanos(0),
    };
    let mut faults = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut place = 0;
    while let Some(line) = lines.get(place) {
        let number = place + 1;
        let outcome = match header(line) {
            Some(("title", rest)) => {
                reader.title = rest.to_owned();
                Ok(())
            }
            Some((word, rest)) => {
                let block = lines[number..].iter().take_while(|line| is_within(line)).count();
                place += block;
                let lines = &lines[number..number + block];
                let read = if word == "policy" { Reader::policy } else { Reader::reload };
                match read(&mut reader, rest, number, lines) {
                    Ok(()) => Ok(()),
                    Err(Unusable::Faults(found)) => {
                        faults.extend(found);
                        Ok(())
                    }
                    Err(wrong) => return Err(wrong),
                }
            }
            _ => reader.line(line, number),
        };
        faults.extend(outcome.err());
        place += 1;
    }
    let Reader { title, policy, steps, packets, .. } = reader;
    match policy {
        Some(policy) if faults.is_empty() => Ok(Case { title, policy, steps, packets }),
        None if faults.is_empty() => {
            Err(Unusable::Faults(vec![Fault { line: 1, at: 0..0, what: What::Policy }]))
        }
        _ => Err(Unusable::Faults(faults)),
    }
}

/// `title: ...`, `policy: ...` or `reload: ...`.
fn header(line: &str) -> Option<(&str, &str)> {
    let (word, rest) = line.split_once(':')?;
    matches!(word, "title" | "policy" | "reload").then(|| (word, rest.trim()))
}

/// True if a line belongs to the policy above it.
fn is_within(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with([' ', '\t'])
}

struct Reader<'a> {
    path: &'a Path,
    open: Open,
    title: String,
    policy: Option<Policy>,
    /// The interfaces of the policy that now holds.
    interfaces: Vec<String>,
    steps: Vec<Step>,
    packets: u64,
    now: Nanos,
}

impl Reader<'_> {
    /// The policy that the case begins with.
    fn policy(&mut self, file: &str, line: usize, block: &[&str]) -> Result<(), Unusable> {
        if self.policy.is_some() {
            return Err(Unusable::Faults(vec![Fault { line, at: 0..0, what: What::Policy }]));
        }
        self.policy = Some(self.checked(file, line, block)?);
        Ok(())
    }

    /// A policy that takes its place.
    fn reload(&mut self, file: &str, line: usize, block: &[&str]) -> Result<(), Unusable> {
        if self.policy.is_none() {
            return Err(Unusable::Faults(vec![Fault { line, at: 0..0, what: What::Policy }]));
        }
        let policy = self.checked(file, line, block)?;
        self.steps.push(Step::Reload(Box::new(policy)));
        Ok(())
    }

    /// A policy: that of a file, if one is named, and the lines under it. It holds for the lines that follow.
    fn checked(&mut self, file: &str, line: usize, block: &[&str]) -> Result<Policy, Unusable> {
        let fault = |what| Unusable::Faults(vec![Fault { line, at: 0..0, what }]);
        let own = block.join("\n");
        let (text, name) = if file.is_empty() {
            // Empty lines in front keep the numbers of the lines.
            ("\n".repeat(line) + &own, self.path.display().to_string())
        } else {
            let from = self.path.parent().unwrap_or(Path::new("")).join(file);
            let unreadable = |error: io::Error| {
                fault(What::PolicyFile { path: from.display().to_string(), error: error.to_string() })
            };
            let text = (self.open)(&from).map_err(unreadable)?;
            (text + "\n" + &own, from.display().to_string())
        };
        let checked = policy::check(&text, &name);
        let policy = checked.policy.ok_or(Unusable::Policy(checked.diagnostics))?;
        self.interfaces = policy.interfaces.iter().map(|interface| interface.name.clone()).collect();
        Ok(policy)
    }

    fn line(&mut self, line: &str, number: usize) -> Result<(), Fault> {
        let mut words = Words::of(line, Values::Patterns);
        let outcome = match words.is_empty() {
            true => Ok(()),
            false if self.policy.is_none() => Err(What::Policy),
            false => self.statement(&mut words, number),
        };
        outcome.map_err(|what| words.fault(number, what))
    }

    fn statement(&mut self, words: &mut Words<'_>, line: usize) -> Result<(), What> {
        match words.next("a statement")? {
            "at" => {
                let at = duration(words)?;
                self.moment(at, words, line)
            }
            "after" => {
                let span = duration(words)?;
                self.moment(Nanos(self.now.0.saturating_add(span.0)), words, line)
            }
            "in" => self.input(1, Nanos(0), words, line),
            "repeat" => {
                let times = |word: &str| word.parse().ok().filter(|times| (1..=1_000_000).contains(times));
                let times = words.value("a number from 1 to 1000000", times)?;
                let every = every(words)?;
                words.value("`in`", |word| (word == "in").then_some(()))?;
                self.input(times, every, words, line)
            }
            "out" => {
                let interface = self.interface(words)?;
                let departure = departure(words)?;
                let packet = packet::read(words)?;
                words.end()?;
                let Some(Step::In(input)) = self.steps.last_mut() else {
                    return Err(What::Missing("the `in` that this `out` belongs to".to_owned()));
                };
                input.outs.push(Out { line, interface, departure, packet });
                Ok(())
            }
            "clear" => {
                words.value("`flows`", |word| (word == "flows").then_some(()))?;
                self.steps.push(Step::Clear);
                words.end()
            }
            "set" => self.set(words, line),
            verb @ ("map" | "unmap") => self.port(verb, words, line),
            "expect" => self.counters(words, line),
            word => {
                let known = ["at", "after", "in", "repeat", "out", "clear", "set", "map", "unmap", "expect"];
                Err(What::unknown(word, known))
            }
        }
    }

    /// `set add NAME PREFIX [for SPAN]`, `set remove NAME PREFIX` or `set flush NAME`.
    fn set(&mut self, words: &mut Words<'_>, line: usize) -> Result<(), What> {
        let verb = words.next("`add`, `remove` or `flush`")?;
        let is_known = ["add", "remove", "flush"].contains(&verb);
        if !is_known {
            return Err(What::unknown(verb, ["add", "remove", "flush"]));
        }
        let set = words.next("the name of a dynamic set")?.to_owned();
        let change = match verb {
            "add" => {
                let prefix = words.value("an address or a prefix", prefix)?;
                let lasts = match words.next_if(|word| word == "for") {
                    Some(_) => Some(duration(words)?),
                    None => None,
                };
                SetWish::Add(prefix, lasts)
            }
            "remove" => SetWish::Remove(words.value("an address or a prefix", prefix)?),
            _ => SetWish::Flush,
        };
        self.steps.push(Step::Set(SetStep { line, set, change }));
        words.end()
    }

    /// `map PROTOCOL ADDRESS:PORT port PORT [for SPAN]` or `unmap PROTOCOL ADDRESS:PORT`.
    fn port(&mut self, verb: &str, words: &mut Words<'_>, line: usize) -> Result<(), What> {
        let protocol = words.value("`tcp` or `udp`", |word| match word {
            "tcp" => Some(Protocol::TCP.0),
            "udp" => Some(Protocol::UDP.0),
            _ => None,
        })?;
        let inside: SocketAddr = words.value("an address with a port", |word| word.parse().ok())?;
        let wish = if verb == "unmap" {
            PortWish::Unmap
        } else {
            if words.next_if(|word| word == "port").is_none() {
                return Err(What::Missing("`port` and the outside port".to_owned()));
            }
            let port = words.value("an outside port", |word| word.parse().ok())?;
            let lasts = match words.next_if(|word| word == "for") {
                Some(_) => Some(duration(words)?),
                None => None,
            };
            PortWish::Map(port, lasts)
        };
        let inside = Endpoint::new(inside.ip(), inside.port(), protocol);
        self.steps.push(Step::Port(PortStep { line, inside, wish }));
        words.end()
    }

    fn moment(&mut self, at: Nanos, words: &mut Words<'_>, line: usize) -> Result<(), What> {
        if at < self.now {
            return Err(What::Backwards);
        }
        self.now = at;
        self.steps.push(Step::At(at));
        if words.is_empty() { Ok(()) } else { self.statement(words, line) }
    }

    fn input(&mut self, times: u64, every: Nanos, words: &mut Words<'_>, line: usize) -> Result<(), What> {
        let itself = words.next_if(|word| word == SELF_ZONE || word == OTHER_ZONE);
        let interface = itself.map_or_else(|| self.interface(words), |word| Ok(word.to_owned()))?;
        let packet = packet::read(words)?;
        if words.next_if(|word| word == "=>").is_none() {
            return Err(What::Missing("`=>` and what becomes of the packet".to_owned()));
        }
        let fate = fate(words)?;
        words.end()?;
        self.steps.push(Step::In(In { line, interface, packet, times, every, fate, outs: Vec::new() }));
        let last = every.0.checked_mul(times - 1).and_then(|span| self.now.0.checked_add(span));
        self.now = Nanos(last.ok_or(What::TooLong)?);
        self.packets = self.packets.saturating_add(times);
        if self.packets > MOST_PACKETS { Err(What::TooMany(MOST_PACKETS)) } else { Ok(()) }
    }

    fn interface(&self, words: &mut Words<'_>) -> Result<String, What> {
        let name = words.next("an interface")?.to_owned();
        if self.interfaces.contains(&name) {
            return Ok(name);
        }
        Err(What::Interface { name, known: self.interfaces.clone() })
    }

    /// `NAME VALUE`, several of them between commas.
    fn counters(&mut self, words: &mut Words<'_>, line: usize) -> Result<(), What> {
        loop {
            let name = words.next("a counter")?.to_owned();
            let (value, goes_on) = words.value("a number", |word| {
                Some((word.trim_end_matches(',').parse().ok()?, word.ends_with(',')))
            })?;
            self.steps.push(Step::Counter(Counter { line, name, value }));
            if !goes_on {
                return words.end();
            }
        }
    }
}

/// An address, or a prefix without bits behind its length.
fn prefix(word: &str) -> Option<IpNet> {
    let net = word.parse().or_else(|_| word.parse().map(|address: IpAddr| IpNet::from(address))).ok()?;
    (net.trunc() == net).then_some(net)
}

/// `[every SPAN]`.
fn every(words: &mut Words<'_>) -> Result<Nanos, What> {
    match words.next_if(|word| word == "every") {
        Some(_) => duration(words),
        None => Ok(Nanos(0)),
    }
}

/// `[at TIME [every SPAN]]`.
fn departure(words: &mut Words<'_>) -> Result<Option<Departure>, What> {
    let Some(_) = words.next_if(|word| word == "at") else { return Ok(None) };
    Ok(Some(Departure { at: duration(words)?, every: every(words)? }))
}

/// `VERDICT [REASON] [by RULE] [nat NAME[,NAME]...]`.
fn fate(words: &mut Words<'_>) -> Result<Fate, What> {
    let verdict = match words.next("a verdict")? {
        "forwarded" => Verdict::Forwarded,
        "delivered" => Verdict::Delivered,
        "answered" => Verdict::Answered(reason(words)?),
        "dropped" => Verdict::Dropped(reason(words)?),
        "held" => Verdict::Held(reason(words)?),
        word => return Err(What::value(word, "forwarded, delivered, answered, dropped or held")),
    };
    let mut fate = Fate { verdict, rule: None, nats: None };
    while let Some(word) = words.more() {
        match word {
            "by" => fate.rule = Some(words.next("a rule's name")?.to_owned()),
            "nat" => {
                let names = words.next("a translation's name")?;
                let names = names.split(',').filter(|name| *name != "none");
                fate.nats = Some(names.map(str::to_owned).collect());
            }
            _ => return Err(What::unknown(word, ["by", "nat"])),
        }
    }
    Ok(fate)
}

fn reason(words: &mut Words<'_>) -> Result<Reason, What> {
    words.value("a reason", Reason::of_name)
}

/// Reads a span of time: numbers with units, as `1m30s`.
fn duration(words: &mut Words<'_>) -> Result<Nanos, What> {
    words.value("a span of time as 250ms, 30s or 2h4m", |word| config::quantity::duration(word).map(Nanos))
}

//! Parser of a case file: title, policy and steps, line by line.

use std::io;
use std::path::Path;

use dataplane::{Reason, Verdict};
use policy::model::{OTHER_ZONE, SELF_ZONE};
use policy::{Diagnostic, Policy};
use wire::Nanos;

use super::fault::{Fault, What};
use super::packet::{self, Words, next};
use super::{Case, Counter, Departure, Fate, In, Out, Step};

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
        faults.extend(outcome.err().map(|what| Fault { line: number, what }));
        place += 1;
    }
    let Reader { title, policy, steps, packets, .. } = reader;
    match policy {
        Some(policy) if faults.is_empty() => Ok(Case { title, policy, steps, packets }),
        None if faults.is_empty() => Err(Unusable::Faults(vec![Fault { line: 1, what: What::Policy }])),
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
            return Err(Unusable::Faults(vec![Fault { line, what: What::Policy }]));
        }
        self.policy = Some(self.checked(file, line, block)?);
        Ok(())
    }

    /// A policy that takes its place.
    fn reload(&mut self, file: &str, line: usize, block: &[&str]) -> Result<(), Unusable> {
        if self.policy.is_none() {
            return Err(Unusable::Faults(vec![Fault { line, what: What::Policy }]));
        }
        let policy = self.checked(file, line, block)?;
        self.steps.push(Step::Reload(Box::new(policy)));
        Ok(())
    }

    /// A policy: that of a file, if one is named, and the lines under it. It holds for the lines that follow.
    fn checked(&mut self, file: &str, line: usize, block: &[&str]) -> Result<Policy, Unusable> {
        let fault = |what| Unusable::Faults(vec![Fault { line, what }]);
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

    fn line(&mut self, line: &str, number: usize) -> Result<(), What> {
        let words = words(line);
        if words.is_empty() {
            return Ok(());
        }
        if self.policy.is_none() {
            return Err(What::Policy);
        }
        self.statement(&mut words.into_iter().peekable(), number)
    }

    fn statement(&mut self, words: &mut Words, line: usize) -> Result<(), What> {
        let word = next(words, "a statement")?;
        match word.as_str() {
            "at" => self.moment(duration(&next(words, "a time")?)?, words, line),
            "after" => {
                let span = duration(&next(words, "a span of time")?)?;
                self.moment(Nanos(self.now.0.saturating_add(span.0)), words, line)
            }
            "in" => self.input(1, Nanos(0), words, line),
            "repeat" => {
                let count = next(words, "how often")?;
                let wanted = "a number from 1 to 1000000";
                let times = count.parse().ok().filter(|times| (1..=1_000_000).contains(times));
                let times = times.ok_or(What::Value { word: count, wanted })?;
                let every = every(words)?;
                match next(words, "`in`")?.as_str() {
                    "in" => self.input(times, every, words, line),
                    other => Err(What::Unknown(other.to_owned())),
                }
            }
            "out" => {
                let interface = self.interface(words)?;
                let departure = departure(words)?;
                let packet = packet::read(words)?;
                end(words)?;
                let Some(Step::In(input)) = self.steps.last_mut() else {
                    return Err(What::Missing("the `in` that this `out` belongs to"));
                };
                input.outs.push(Out { line, interface, departure, packet });
                Ok(())
            }
            "clear" => {
                match next(words, "what to clear")?.as_str() {
                    "flows" => self.steps.push(Step::Clear),
                    other => return Err(What::Unknown(other.to_owned())),
                }
                end(words)
            }
            "expect" => self.counters(words, line),
            _ => Err(What::Unknown(word)),
        }
    }

    fn moment(&mut self, at: Nanos, words: &mut Words, line: usize) -> Result<(), What> {
        if at < self.now {
            return Err(What::Backwards);
        }
        self.now = at;
        self.steps.push(Step::At(at));
        if words.peek().is_some() { self.statement(words, line) } else { Ok(()) }
    }

    fn input(&mut self, times: u64, every: Nanos, words: &mut Words, line: usize) -> Result<(), What> {
        let itself = words.next_if(|word| word == SELF_ZONE || word == OTHER_ZONE);
        let interface = itself.map_or_else(|| self.interface(words), Ok)?;
        let packet = packet::read(words)?;
        words.next_if(|word| word == "=>").ok_or(What::Missing("`=>` and what becomes of the packet"))?;
        let fate = fate(words)?;
        end(words)?;
        self.steps.push(Step::In(In { line, interface, packet, times, every, fate, outs: Vec::new() }));
        let last = every.0.checked_mul(times - 1).and_then(|span| self.now.0.checked_add(span));
        self.now = Nanos(last.ok_or(What::TooLong)?);
        self.packets = self.packets.saturating_add(times);
        if self.packets > MOST_PACKETS { Err(What::TooMany(MOST_PACKETS)) } else { Ok(()) }
    }

    fn interface(&self, words: &mut Words) -> Result<String, What> {
        let name = next(words, "an interface")?;
        if self.interfaces.contains(&name) { Ok(name) } else { Err(What::Interface(name)) }
    }

    /// `NAME VALUE`, several of them between commas.
    fn counters(&mut self, words: &mut Words, line: usize) -> Result<(), What> {
        loop {
            let name = next(words, "a counter")?;
            let word = next(words, "the counter's value")?;
            let digits = word.trim_end_matches(',').to_owned();
            let goes_on = digits.len() < word.len();
            let value = digits.parse().map_err(|_| What::Value { word, wanted: "a number" })?;
            self.steps.push(Step::Counter(Counter { line, name, value }));
            if !goes_on {
                return end(words);
            }
        }
    }
}

/// `[every SPAN]`.
fn every(words: &mut Words) -> Result<Nanos, What> {
    match words.next_if(|word| word == "every") {
        Some(_) => duration(&next(words, "a span of time")?),
        None => Ok(Nanos(0)),
    }
}

/// `[at TIME [every SPAN]]`.
fn departure(words: &mut Words) -> Result<Option<Departure>, What> {
    let Some(_) = words.next_if(|word| word == "at") else { return Ok(None) };
    let at = duration(&next(words, "a time")?)?;
    Ok(Some(Departure { at, every: every(words)? }))
}

/// `VERDICT [REASON] [by RULE] [nat NAME[,NAME]...]`.
fn fate(words: &mut Words) -> Result<Fate, What> {
    let word = next(words, "a verdict")?;
    let verdict = match word.as_str() {
        "forwarded" => Verdict::Forwarded,
        "delivered" => Verdict::Delivered,
        "answered" => Verdict::Answered(reason(words)?),
        "dropped" => Verdict::Dropped(reason(words)?),
        "held" => Verdict::Held(reason(words)?),
        _ => return Err(What::Value { word, wanted: "forwarded, delivered, answered, dropped or held" }),
    };
    let mut fate = Fate { verdict, rule: None, nats: None };
    while let Some(word) = words.next() {
        match word.as_str() {
            "by" => fate.rule = Some(next(words, "a rule's name")?),
            "nat" => {
                let names = next(words, "a translation's name")?;
                let names = names.split(',').filter(|name| *name != "none");
                fate.nats = Some(names.map(str::to_owned).collect());
            }
            _ => return Err(What::Unknown(word)),
        }
    }
    Ok(fate)
}

fn reason(words: &mut Words) -> Result<Reason, What> {
    let word = next(words, "a reason")?;
    Reason::of_name(&word).ok_or(What::Value { word, wanted: "a reason" })
}

fn end(words: &mut Words) -> Result<(), What> {
    words.next().map_or(Ok(()), |word| Err(What::Unknown(word)))
}

/// Words of a line, up to a comment. What stands in quotes is one word.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = behind.trim_start();
    }
    words
}

/// A span of time: numbers with units, as `1m30s`.
fn duration(word: &str) -> Result<Nanos, What> {
    let wrong = || What::Value { word: word.to_owned(), wanted: "a span of time as 250ms, 30s or 2h4m" };
    let mut total = 0_u64;
    let mut rest = word;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(wrong()),
        };
        total = number.checked_mul(unit).and_then(|span| total.checked_add(span)).ok_or_else(wrong)?;
        rest = &rest[letters..];
    }
    if word.is_empty() { Err(wrong()) } else { Ok(Nanos(total)) }
}

//! Actions of filters: policers, and the redirection of incoming packets to a device that shapes them.

use super::filter::Words;
use super::unit;
use crate::import::note::Why;

/// Action of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Police(Police),
    /// Redirection to the queues of a device.
    Redirect(String),
    /// Nothing: the packet goes on, in the class of the filter.
    Pass,
}

/// Policer: a token bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Police {
    /// Identifier: filters that name the same share one.
    pub(super) index: Option<u32>,
    /// Bits per second.
    pub(super) rate: Option<u64>,
    pub(super) burst: u64,
    /// Packets per second, in the place of bits.
    pub(super) packets: Option<u64>,
    pub(super) packet_burst: u64,
    pub(super) overhead: u64,
    pub(super) is_atm: bool,
    /// Fate of packets above the rate, and within.
    pub(super) exceed: Option<Control>,
    pub(super) conform: Option<Control>,
}

/// Treatment of a packet after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Drop,
    /// The packet passes, in the filter's class.
    Pass,
    /// The next action.
    Pipe,
    /// The next filter.
    Continue,
    /// The first filter, again.
    Reclassify,
    /// The packet is the action's.
    Stolen,
}

/// Reads the word of a control.
fn control(word: &str) -> Option<Control> {
    match word {
        "drop" | "shot" => Some(Control::Drop),
        "pass" | "ok" => Some(Control::Pass),
        "pipe" => Some(Control::Pipe),
        "continue" => Some(Control::Continue),
        "reclassify" => Some(Control::Reclassify),
        "stolen" => Some(Control::Stolen),
        _ => None,
    }
}

/// Reads what follows `action`.
pub(super) fn read(words: &mut Words<'_>) -> Result<Action, Why> {
    if words.takes("order") {
        words.value()?;
    }
    let kind = words.value()?;
    let action = match kind {
        "police" => return police(words),
        "mirred" => mirred(words)?,
        "gact" => {
            while words.takes("action") || words.takes("control") {}
            gact(words.value()?)?
        }
        word if control(word).is_some() => gact(word)?,
        other => return Err(Why::Feature(format!("action {other}"))),
    };
    skip(words);
    Ok(action)
}

fn gact(word: &str) -> Result<Action, Why> {
    match control(word) {
        Some(Control::Pass | Control::Pipe) => Ok(Action::Pass),
        _ => Err(Why::Feature(format!("action {word}"))),
    }
}

/// Reads a redirection, in the words of a listing, of JSON or of a command.
fn mirred(words: &mut Words<'_>) -> Result<Action, Why> {
    let (mut is_out, mut is_redirect, mut device) = (false, false, None);
    while let Some(word) = words.peek() {
        match word.trim_start_matches('(').to_ascii_lowercase().as_str() {
            "egress" => is_out = true,
            "redirect" => is_redirect = true,
            "direction" | "mirred_action" | "to" | "control" => {}
            "dev" | "device" | "to_dev" => {
                words.next();
                device = Some(words.value()?.trim_end_matches(')').to_owned());
                continue;
            }
            "ingress" | "mirror" => return Err(Why::Feature(format!("mirred {word}"))),
            word if control(word).is_some() => {}
            _ => break,
        }
        words.next();
    }
    match device {
        Some(device) if is_out && is_redirect => Ok(Action::Redirect(device)),
        _ => Err(Why::Feature("mirred".to_owned())),
    }
}

/// Skips what the kernel counts, and what it does not do.
fn skip(words: &mut Words<'_>) {
    while let Some(word) = words.peek() {
        match word {
            "index" | "ref" | "bind" | "installed" | "used" | "firstused" | "lastused" | "expires"
            | "val" => {
                words.next();
                words.next();
                words.takes("sec");
            }
            "random" | "random_type" => {
                words.next();
                words.takes("type");
                words.next();
                while words.peek().is_some_and(|word| control(word).is_some() || word == "control") {
                    words.next();
                }
            }
            word if control(word).is_some() => drop(words.next()),
            _ => return,
        }
    }
}

/// Reads what follows `police`.
pub(super) fn police(words: &mut Words<'_>) -> Result<Action, Why> {
    let mut police = Police::default();
    if let Some(index) = words.peek().filter(|word| word.starts_with("0x")) {
        police.index = unit::hex(index);
        words.next();
    }
    while let Some(word) = words.peek() {
        let before = words.position();
        words.next();
        match word {
            "index" => police.index = unit::number(words.value()?),
            "rate" => police.rate = Some(parsed(word, words.value()?, unit::rate)?),
            "burst" | "buffer" | "maxburst" => police.burst = parsed(word, words.value()?, unit::size)?,
            "pkts_rate" => police.packets = Some(parsed(word, words.value()?, unit::size)?),
            "pkts_burst" => police.packet_burst = parsed(word, words.value()?, unit::size)?,
            "overhead" => police.overhead = parsed(word, words.value()?, unit::size)?,
            "linklayer" => match words.value()? {
                "ethernet" | "unspec" => {}
                "atm" | "adsl" => police.is_atm = true,
                other => return Err(Why::Value(format!("linklayer {other}"))),
            },
            "mtu" | "minburst" => {
                // Larger packets exceed; the kernel's own bound is above any MTU of Ethernet.
                let value = words.value()?;
                if parsed(word, value, unit::size)? < 1_514 && value != "0" && value != "0b" {
                    return Err(Why::Feature(format!("mtu {value}")));
                }
            }
            "mpu" => {
                let value = words.value()?;
                if parsed(word, value, unit::size)? != 0 {
                    return Err(Why::Feature(format!("mpu {value}")));
                }
            }
            "peakrate" | "avrate" => return Err(Why::Feature(format!("{word} {}", words.value()?))),
            "conform-exceed" | "action" | "control" => {
                let both = words.peek().unwrap_or_default();
                let mut both = both.split('/');
                let Some(exceed) = both.next().and_then(control) else {
                    words.back(before);
                    break;
                };
                words.next();
                // In JSON there are two.
                if word == "control" && police.exceed.is_some() {
                    police.conform = Some(exceed);
                } else {
                    police.exceed = Some(exceed);
                }
                if let Some(word) = both.next() {
                    police.conform = Some(control(word).ok_or_else(|| Why::Value(word.to_owned()))?);
                }
            }
            "ref" | "bind" | "installed" | "used" | "firstused" | "lastused" => {
                words.next();
                words.takes("sec");
            }
            word => match control(word) {
                Some(exceed) => police.exceed = Some(exceed),
                None => {
                    words.back(before);
                    break;
                }
            },
        }
    }
    if police.rate.is_none() && police.packets.is_none() {
        return Err(Why::NotPrinted("rate of a policer".to_owned()));
    }
    Ok(Action::Police(police))
}

fn parsed(key: &str, word: &str, parse: impl Fn(&str) -> Option<u64>) -> Result<u64, Why> {
    parse(word).ok_or_else(|| Why::Value(format!("{key} {word}")))
}

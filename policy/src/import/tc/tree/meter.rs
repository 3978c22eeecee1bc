//! Meters of policers.

use wire::{BitRate, Bytes};

use super::Builder;
use crate::import::note::Why;
use crate::import::tc::action::{Action, Control, Police};
use crate::import::tc::filter::Filter;
use crate::model::{ColourAction, Interface, Meter, MeterRate, Overhead};

/// A filter that has been translated.
pub(in crate::import::tc) struct Policed {
    /// Meter of its policer, if it has one.
    pub(in crate::import::tc) meter: Option<String>,
}

impl Builder<'_> {
    /// Translates the actions of a filter, to whose packets so many bytes of the link layer count. `None`, with a report, for a filter
    /// without effect here.
    pub(in crate::import::tc) fn policed(&mut self, filter: &Filter, header: u64) -> Option<Policed> {
        match self.meter_of(filter, header) {
            Ok(meter) => {
                self.ledger.translated(filter.object);
                Some(Policed { meter })
            }
            Err(why) => {
                self.ledger.miss(filter.object, why);
                None
            }
        }
    }

    /// Makes the meter of a filter's policer.
    fn meter_of(&mut self, filter: &Filter, header: u64) -> Result<Option<String>, Why> {
        let mut name = None;
        for action in &filter.actions {
            match action {
                Action::Pass => {}
                Action::Redirect(device) => {
                    return Err(Why::Feature(format!("mirred egress redirect dev {device}")));
                }
                Action::Police(_) if name.is_some() => {
                    return Err(Why::Feature("a second police".to_owned()));
                }
                Action::Police(police) => name = Some(self.meter(police, header)?),
            }
        }
        Ok(name)
    }

    fn meter(&mut self, police: &Police, header: u64) -> Result<String, Why> {
        if let Some(name) = police.index.and_then(|index| self.forest.shared.get(&index)) {
            return Ok(name.clone());
        }
        let exceed = match police.exceed.unwrap_or(Control::Reclassify) {
            Control::Drop => ColourAction::Drop,
            Control::Pass | Control::Pipe => ColourAction::Pass,
            other => return Err(Why::Feature(format!("police conform-exceed {other:?}").to_lowercase())),
        };
        match police.conform.unwrap_or(Control::Pass) {
            Control::Pass | Control::Pipe => {}
            other => return Err(Why::Feature(format!("police conform-exceed /{other:?}").to_lowercase())),
        }
        let name = format!("{}-police-{}", self.label, self.forest.meters.len() + 1);
        let overhead = Bytes(header + police.overhead);
        if overhead > Overhead::MOST {
            return Err(Why::Value(format!("overhead {}", police.overhead)));
        }
        let mut meter = Meter::new(&name);
        meter.overhead = if police.is_atm { Overhead::Atm(overhead) } else { Overhead::Fixed(overhead) };
        meter.actions[2] = exceed;
        let longest = meter.overhead.count(Interface::MTU.into());
        match (police.packets, police.rate) {
            (Some(packets), _) => {
                meter.rate = MeterRate::Packets(packets);
                meter.burst = police.packet_burst;
                meter.overhead = Overhead::IP;
                if packets == 0
                    || meter.burst == 0
                    || meter.burst > Meter::MOST_BURST
                    || packets > 10_000_000_000
                {
                    return Err(Why::Value(format!("pkts_rate {packets} pkts_burst {}", meter.burst)));
                }
            }
            (None, rate) => {
                let rate = rate.unwrap_or(0);
                meter.rate = MeterRate::Bits(BitRate(rate));
                meter.burst = police.burst;
                if meter.burst > Meter::MOST_BURST {
                    let why = format!("burst {}b: {} are the most", meter.burst, Meter::MOST_BURST);
                    return Err(Why::Value(why));
                }
                if meter.burst < longest {
                    let why = format!("burst {}b: a packet has up to {longest}", meter.burst);
                    return Err(Why::Value(why));
                }
                if !(1..=10_000_000_000_000).contains(&rate) {
                    return Err(Why::Value(format!("rate {rate}bit")));
                }
            }
        }
        self.forest.meters.push(meter);
        if let Some(index) = police.index.filter(|index| *index != 0) {
            self.forest.shared.insert(index, name.clone());
        }
        Ok(name)
    }
}

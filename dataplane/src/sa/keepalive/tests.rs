use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::tables::Tables;

const START: Nanos = Nanos::from_secs(1_000_000);

const NONE: [u16; 0] = [];

/// Tunnels with keepalives after so many seconds, of which 0 stands for none.
fn tables(spans: &[u64]) -> Tables {
    let mut text = "[interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n".to_owned();
    for (place, seconds) in spans.iter().enumerate() {
        let key = |direction: usize| format!("{:040x}", 2 * place + direction + 1);
        let span = if *seconds == 0 { "off".to_owned() } else { format!("{seconds}s") };
        text += &format!(
            "[interface.t{place}]\nzone = \"vpn\"\n[interface.t{place}.esp]\nlocal = \"192.0.2.1\"\n\
             remote = \"192.0.2.{}\"\nudp = \"yes\"\nkeepalive = \"{span}\"\n",
            place + 2
        );
        for (direction, word) in ["out", "in"].into_iter().enumerate() {
            text += &format!(
                "[[interface.t{place}.esp.sa]]\ndirection = \"{word}\"\nspi = {}\nalgorithm = \"aes128-gcm\"\nkey = \"{}\"\n",
                0x1000 + 2 * place + direction,
                key(direction)
            );
        }
        text += &format!("[[route]]\nto = \"10.{place}.0.0/16\"\ninterface = \"t{place}\"\n");
    }
    let parsed = policy::parse(&text, "policy");
    Tables::compile(&parsed.policy.expect("a policy"), 1).expect("tables")
}

/// The state of several workers that share the tables.
fn workers(tables: &Tables, count: u16) -> Vec<Sas> {
    let shares = (0..count).filter_map(|worker| Share::new(worker, count));
    shares
        .map(|share| {
            let mut sas = Sas::new(tables, share);
            sas.begin(START);
            sas
        })
        .collect()
}

/// Keepalives of a worker that are due at that moment, all of which can be sent.
fn sent(sas: &mut Sas, now: Nanos) -> Vec<u16> {
    let mut all = Vec::new();
    while sas.may_keep_alive(now) {
        let Some(tunnel) = sas.next_keepalive(now) else { break };
        sas.note_keepalive(tunnel, now);
        all.push(tunnel);
    }
    all
}

proptest! {
    /// Whichever worker sends packets, a keepalive goes at the first look after so long without one, and by one worker.
    #[test]
    fn silence_is_what_no_worker_has_ended(events in vec((0..4_u16, 0..3_u16, 0..9_000_u64), 1..120)) {
        let spans = [3, 0, 20];
        let tables = tables(&spans);
        let mut workers = workers(&tables, 3);
        let (mut now, mut latest) = (START, [START; 3]);
        for (worker, tunnel, millis) in events {
            now += Nanos::from_millis(millis);
            // The last of the four is nobody: time passes.
            if let Some(sas) = workers.get_mut(usize::from(worker)) {
                prop_assert!(sas.admit((tunnel, 0), 100, now).is_ok());
                latest[usize::from(tunnel)] = now;
            }
            let mut expected = Vec::new();
            for (tunnel, seconds) in spans.into_iter().enumerate() {
                if seconds > 0 && now.since(latest[tunnel]) >= Nanos::from_secs(seconds) {
                    expected.push(tunnel as u16);
                    latest[tunnel] = now;
                }
            }
            let all: Vec<Vec<u16>> = workers.iter_mut().map(|sas| sent(sas, now)).collect();
            prop_assert_eq!(all, [expected, vec![], vec![]]);
        }
    }
}

#[test]
fn one_that_cannot_be_sent_is_tried_again_each_second() {
    let tables = tables(&[20]);
    let [mut sas] = <[Sas; 1]>::try_from(workers(&tables, 1)).ok().expect("one");
    let after = |millis| START + Nanos::from_millis(millis);
    assert!(!sas.may_keep_alive(after(19_999)));
    for millis in [20_000, 21_000, 22_500] {
        assert!(sas.may_keep_alive(after(millis)));
        assert_eq!((sas.next_keepalive(after(millis)), sas.next_keepalive(after(millis))), (Some(0), None));
        assert!(!sas.may_keep_alive(after(millis + 999)), "{millis}");
    }
    assert_eq!(sent(&mut sas, after(23_500)), [0]);
    assert!(!sas.may_keep_alive(after(43_499)));
    assert_eq!(sent(&mut sas, after(43_500)), [0]);
}

#[test]
fn a_clock_that_is_set_back_begins_the_time_anew() {
    let tables = tables(&[20]);
    let [mut sas] = <[Sas; 1]>::try_from(workers(&tables, 1)).ok().expect("one");
    assert!(sas.admit((0, 0), 100, START).is_ok());
    let early = START - Nanos::from_secs(3_600);
    assert_eq!(sent(&mut sas, early), NONE);
    assert_eq!(sent(&mut sas, early + Nanos::from_secs(19)), NONE);
    assert_eq!(sent(&mut sas, early + Nanos::from_secs(20)), [0]);
}

#[test]
fn a_reload_goes_on_with_the_time() {
    let (old, new) = (tables(&[20]), tables(&[20]));
    let new = new.after(&old);
    let [mut sas] = <[Sas; 1]>::try_from(workers(&old, 1)).ok().expect("one");
    let mut plan = super::super::SasPlan::prepare(&old, &new, Share::WHOLE);
    plan.apply(&mut sas, START + Nanos::from_secs(15));
    assert_eq!(sent(&mut sas, START + Nanos::from_secs(19)), NONE);
    assert_eq!(sent(&mut sas, START + Nanos::from_secs(20)), [0]);
}

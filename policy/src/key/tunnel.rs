//! Tunnels, and their security associations.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use config::{Entry, tables};
use wire::esp::{Direction, EcnUse, Esn, Mode, SUITES, Secret, Suite, Tfc, Udp};

use super::{Keys, Table};
use crate::model::{
    DfBit, Follow, FragmentWhen, Interface, KeyFiles, KeySource, Legacy, Lifetime, StaticSa, Tunnel,
    TunnelDscp, WindowSize,
};
use crate::value::address::{ADDRESS, PREFIX};
use crate::value::selector::SELECTOR;
use crate::value::tunnel::{ALGORITHM, Auth, KEEPALIVE, KEY, LIFETIME, REMOTE, TFC, TUNNEL_DSCP, WINDOW};
use crate::value::{Flag, NUMBER32, PATH, STRING, key};
use crate::word;

impl Keys<'_, '_> {
    /// True if the interface is a tunnel.
    pub(super) fn is_tunnel(&self, interface: &Interface) -> bool {
        match self {
            Keys::Read(table) => table.has("esp"),
            Keys::Print(_) => interface.esp.is_some(),
        }
    }

    /// Complains of keys that have no meaning in this table; `why` is the reason.
    pub(super) fn misplaced(&mut self, keys: &[&'static str], why: &str) {
        if let Keys::Read(table) = self {
            keys.iter().for_each(|key| table.misplaced(key, why));
        }
    }
}

/// `[interface.NAME.esp]`, and the list of its security associations.
pub(super) fn esp(keys: &mut Keys<'_, '_>, interface: &mut Interface) {
    match keys {
        Keys::Read(outer) => {
            let Some(found) = outer.raw("esp") else { return };
            let Some(mut table) = Table::of(outer.sink(), found, "a tunnel") else { return outer.note(true) };
            let mut read = new_tunnel();
            tunnel(&mut Keys::Read(&mut table), &mut read);
            let mut entries = Vec::new();
            for mut table in tables(&mut table, "sa", "a security association") {
                let mut one = new_sa();
                let is_whole = sa(&mut Keys::Read(&mut table), &mut one);
                read.sas.extend(is_whole.then_some(one));
                entries.push((table.finish(), is_whole));
            }
            outer.absorb(table.finish());
            absorb_list(outer, entries);
            interface.esp = Some(Box::new(read));
        }
        Keys::Print(out) => {
            let Some(esp) = &mut interface.esp else { return };
            let name = key(&interface.name);
            out.header(&format!("[interface.{name}.esp]"));
            tunnel(&mut Keys::Print(out), esp);
            for one in &mut esp.sas {
                out.header(&format!("[[interface.{name}.esp.sa]]"));
                sa(&mut Keys::Print(out), one);
            }
        }
    }
}

/// Adds the positions of the values of a list's tables to those of `outer`, as elements of lists at the tables' keys.
fn absorb_list(outer: &mut Table<'_>, entries: Vec<(Entry, bool)>) {
    let mut place = 0;
    for (mut entry, is_whole) in entries {
        entry.broken |= !is_whole;
        entry.parts.iter_mut().for_each(|part| part.item = Some(place));
        place += usize::from(is_whole);
        outer.absorb(entry);
    }
}

/// Keys of `[interface.NAME.esp]`, beside the list of security associations.
pub(super) fn tunnel(keys: &mut Keys<'_, '_>, tunnel: &mut Tunnel) {
    keys.required("local", "\"192.0.2.1\"", ADDRESS, &mut tunnel.local);
    keys.required("remote", "\"198.51.100.1\"", REMOTE, &mut tunnel.remote);
    keys.key("mode", word::TUNNEL_MODE, &mut tunnel.mode);
    keys.list("local-net", SELECTOR, &mut tunnel.local_net);
    keys.list("remote-net", SELECTOR, &mut tunnel.remote_net);
    keys.key("udp", word::UDP, &mut tunnel.udp);
    match tunnel.udp {
        Udp::Yes => keys.key("keepalive", KEEPALIVE, &mut tunnel.keepalive),
        Udp::No => keys.misplaced(&["keepalive"], "without udp = \"yes\" there is no NAT to keep open"),
    }
    keys.key("follow", Flag(Follow::Yes, Follow::No), &mut tunnel.follow);
    keys.key("window", WINDOW, &mut tunnel.window);
    match tunnel.mode {
        Mode::Tunnel => outer_header(keys, tunnel),
        Mode::Transport => {
            let why = "packets keep their IP header in transport mode: leave the key out";
            keys.misplaced(&["direct", "fragment", "df", "dscp", "ecn"], why);
            // RFC 4303, section 2.7: only what has a length of its own can be told from such padding.
            keys.misplaced(
                &["tfc"],
                "not every protocol tells such padding from its data: leave the key out",
            );
        }
    }
    keys.key("legacy", Flag(Legacy::Allowed, Legacy::Refused), &mut tunnel.legacy);
    keys.key("keys", word::KEY_SOURCE, &mut tunnel.keys);
    keys.optional("reqid", NUMBER32, &mut tunnel.reqid);
    keys.optional("if-id", NUMBER32, &mut tunnel.if_id);
}

/// Keys of tunnel mode: what goes around the tunnel, and what outer headers say.
fn outer_header(keys: &mut Keys<'_, '_>, tunnel: &mut Tunnel) {
    keys.list("direct", PREFIX, &mut tunnel.direct);
    keys.key("fragment", word::FRAGMENT_WHEN, &mut tunnel.fragment);
    keys.key("df", word::DF, &mut tunnel.df);
    keys.key("dscp", TUNNEL_DSCP, &mut tunnel.dscp);
    keys.key("ecn", word::TUNNEL_ECN, &mut tunnel.ecn);
    keys.key("tfc", TFC, &mut tunnel.tfc);
}

/// Keys of `[[interface.NAME.esp.sa]]`.
pub(super) fn sa(keys: &mut Keys<'_, '_>, sa: &mut StaticSa) -> bool {
    // Each is asked for, so that all that are missing are reported.
    let mut algorithm = sa.suite.name().algorithm();
    let are_there = [
        keys.required("direction", "\"out\"", word::DIRECTION, &mut sa.direction),
        keys.required("spi", "0x1000", NUMBER32, &mut sa.spi),
        keys.required("algorithm", "\"aes128-gcm\"", ALGORITHM, &mut algorithm),
    ];
    let is_known = suite(keys, algorithm, are_there[2], &mut sa.suite);
    keys.key("esn", Flag(Esn::On, Esn::Off), &mut sa.esn);
    keys.key("soft", LIFETIME, &mut sa.soft);
    keys.key("hard", LIFETIME, &mut sa.hard);
    let are_keys = is_known && are_keys(keys, sa);
    are_there.iter().all(|is_there| *is_there) && are_keys
}

/// `auth`, which makes a suite of the algorithm of this word. False if the suite is not known.
fn suite(keys: &mut Keys<'_, '_>, algorithm: &'static str, is_read: bool, suite: &mut Suite) -> bool {
    if !is_read {
        keys.optional("auth", STRING, &mut None);
        any_keys(keys);
        return false;
    }
    if let Some(combined) = Suite::named(algorithm, None) {
        let why = format!("{algorithm} authenticates by itself: leave the key out");
        keys.misplaced(&["auth", "auth-key", "auth-key-file"], &why);
        *suite = *combined;
        return true;
    }
    let is_known = keys.required("auth", "\"hmac-sha256-128\"", Auth(algorithm), suite);
    if !is_known {
        any_keys(keys);
    }
    is_known
}

/// Keys of algorithms that could not be read.
fn any_keys(keys: &mut Keys<'_, '_>) {
    keys.optional("key", KEY, &mut None);
    keys.optional("auth-key", KEY, &mut None);
    keys.optional("key-file", PATH, &mut None);
    keys.optional("auth-key-file", PATH, &mut None);
}

/// A key, or the file that it is in. False if there is neither.
fn key_of(
    keys: &mut Keys<'_, '_>,
    [own, in_file]: [&'static str; 2],
    key: &mut Secret,
    file: &mut Option<PathBuf>,
) -> bool {
    let has_file = match keys {
        Keys::Read(table) => table.has(in_file),
        Keys::Print(_) => file.is_some(),
    };
    if !has_file {
        return keys.required(own, "\"000102030405060708090a0b0c0d0e0f10111213\"", KEY, key);
    }
    keys.misplaced(&[own], "it is in a file: leave the one or the other out");
    keys.optional(in_file, PATH, file);
    file.is_some()
}

/// Keys of the algorithms of `sa.suite`. False if one is missing.
fn are_keys(keys: &mut Keys<'_, '_>, sa: &mut StaticSa) -> bool {
    let Suite { key, auth_key, .. } = sa.suite;
    let mut is_whole = true;
    if key > 0 {
        is_whole &= key_of(keys, ["key", "key-file"], &mut sa.key, &mut sa.files.key);
    } else {
        keys.misplaced(&["key", "key-file"], "nothing is encrypted: leave the key out");
    }
    if auth_key > 0 {
        is_whole &= key_of(keys, ["auth-key", "auth-key-file"], &mut sa.auth_key, &mut sa.files.auth_key);
    } else if sa.suite.name().auth().is_some() {
        keys.misplaced(&["auth-key", "auth-key-file"], "nothing is authenticated: leave the key out");
    }
    is_whole
}

/// A tunnel before its keys are read.
pub(super) fn new_tunnel() -> Tunnel {
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    Tunnel {
        local: unknown,
        remote: None,
        mode: Mode::Tunnel,
        local_net: Vec::new(),
        remote_net: Vec::new(),
        direct: Vec::new(),
        udp: Udp::No,
        keepalive: None,
        follow: Follow::Yes,
        fragment: FragmentWhen::Before,
        window: WindowSize::default(),
        df: DfBit::Copy,
        dscp: TunnelDscp::Copy,
        ecn: EcnUse::Copy,
        tfc: Tfc::Off,
        legacy: Legacy::Refused,
        keys: KeySource::Policy,
        reqid: None,
        if_id: None,
        sas: Vec::new(),
    }
}

/// A security association before its keys are read.
pub(super) fn new_sa() -> StaticSa {
    let none = || Secret::new(Box::default());
    StaticSa {
        direction: Direction::Out,
        spi: 0,
        suite: SUITES[0],
        esn: Esn::Off,
        soft: Lifetime::UNBOUNDED,
        hard: Lifetime::UNBOUNDED,
        key: none(),
        auth_key: none(),
        files: KeyFiles::default(),
    }
}

//! Programs load with the gateway's privileges, and whatever the size of the table.

use super::*;

#[test]
fn the_verifier_accepts_both_programs_of_the_smallest_and_the_largest_table() {
    const INGRESS: u32 = 46;
    // As the gateway is: the verifier is stricter then.
    if !confine() {
        return eprintln!("SKIPPED: no programs may be loaded here");
    }
    for (flows, cpus) in [(1, 1), (1 << 18, 1024), (1 << 20, 1024)] {
        let layout = Layout::new(flows, cpus);
        let map = match bpf::shared_map(layout.bytes() as u32) {
            Ok(map) => map,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return eprintln!("SKIPPED: no maps may be made here: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let memory = Memory { map: map.as_fd(), layout, hasher: &Hasher::new([3, 4]) };
        let limits = Limits { line: layout::LINES - 1, backlog: 1 << 14 };
        let filter = filter(&memory, limits, MARK).unwrap();
        let action = action(&memory, MARK).unwrap();
        let sockets = bpf::socket_map(1).unwrap();
        let fronts = [Checksums::Complete, Checksums::Bare].map(|checksums| {
            let (sockets, first_line, mac) = (sockets.as_fd(), layout::LINES - 64, Mac([2; 6]));
            let front = Front { sockets, queues: 64, first_line, backlog: 1 << 14, mac, checksums };
            xdp(&memory, &front).unwrap()
        });
        let programs = [(1, 0, &filter), (3, INGRESS, &filter), (3, INGRESS, &action)];
        for (kind, attach, program) in programs.into_iter().chain(fronts.iter().map(|front| (6, 37, front))) {
            let (loaded, log) = verify(kind, attach, program);
            assert!(loaded.is_ok(), "{loaded:?}\n{log}");
            println!("{} instructions; {}", program.len(), log.lines().last().unwrap_or_default());
        }
    }
}

#[test]
fn the_verifier_accepts_the_witnesses() {
    let Some(path) = fast_path() else { return };
    for (_, program) in witnesses(&path.programs()) {
        let (loaded, log) = verify(17, 0, &program.unwrap());
        assert!(loaded.is_ok(), "{loaded:?}\n{log}");
    }
}

/// Programs of a large table find the slots behind the reach of one address, as they do the others.
#[test]
fn flows_go_by_in_both_parts_of_a_large_table() {
    let path = match FastPath::open(1 << 20, [3, 4], MARK) {
        Ok(path) => path,
        Err(error) if matches!(error.error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => {
            return eprintln!("SKIPPED: no table of a gibibyte may be made here: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    stay_on_this_cpu();
    let program = filter(&path.programs(), Limits { line: LINE, backlog: BACKLOG }, MARK).unwrap();
    let filter = bpf::load(Hook::TcxIngress, &program).unwrap();
    let second = path.programs().layout.second_part();
    let mut parts = [0; 2];
    for number in 0..40_u16 {
        if number == 20 {
            // The slots of this flow lie on both sides.
            path.table().use_slots_from(second - 1);
        }
        // With windows, for which the filter finds the slot of the other direction too.
        let windows = Window { end: 1, max_window: 1_000, grants: 1_000, scale: 0 };
        let from = tuple("10.0.0.2", 1_000 + number, "192.0.2.9", 443);
        let to = tuple("198.51.100.1", 2_000 + number, "192.0.2.9", 443);
        let places = path.publish(&both(Protocol::TCP, from, to, Some([windows; 2]))).unwrap();
        let segment = build::ethernet(Mac([2; 6]), Mac([0; 6]))
            .ipv4("10.0.0.2".parse().unwrap(), "192.0.2.9".parse().unwrap())
            .tcp(Tcp {
                sport: from.sport,
                dport: from.dport,
                seq: 1,
                ack: 1,
                flags: Flags::ACK,
                window: 1_000,
                ..Tcp::default()
            });
        let frame = segment.payload(&[7; 9]).to_vec();
        for (value, mark) in [(TCX_DROP, 0), (TCX_REDIRECT, fast_mark(MARK))] {
            run_loaded(filter.as_fd(), &frame, Some(Context::default())).unwrap();
            path.table().set_taken(LINE, path.table().passed(LINE));
            let done = run_loaded(path.action(), &frame, Some(Context::default())).unwrap();
            assert_eq!((done.value, done.mark), (value, mark));
        }
        assert_eq!(places.map(|place| path.account(place).packets), [1, 0]);
        places.iter().for_each(|place| parts[usize::from(place.index() >= second)] += 1);
    }
    assert_eq!(parts, [41, 39]);
}

//! Ports between real hosts.
#![allow(clippy::unwrap_used)]

mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::{Host, command, ip};
use ports::{Line, MARK, Opened, Punt, Spec, Wish};
use wire::{Batch, Pool};

fn spec(name: &str, wish: Wish) -> Spec {
    Spec { name: name.to_owned(), wish, ..Spec::default() }
}

/// Carries frames between two lines until told to stop.
fn shuttle(one: &mut dyn Line, other: &mut dyn Line, pool: &mut Pool, stop: &AtomicBool) {
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        one.receive(&mut batch, pool).unwrap();
        other.transmit(&mut batch, pool).unwrap();
        batch.drain().for_each(|frame| pool.put(frame));
        other.receive(&mut batch, pool).unwrap();
        one.transmit(&mut batch, pool).unwrap();
        batch.drain().for_each(|frame| pool.put(frame));
    }
}

#[test]
fn linux_behind_af_packet_is_reached_through_its_punt_and_not_beside_it() {
    linux_is_reached_through_its_punt(Wish::Packet);
}

#[test]
fn linux_behind_af_xdp_is_reached_through_its_punt_and_not_beside_it() {
    linux_is_reached_through_its_punt(Wish::Xdp);
}

fn linux_is_reached_through_its_punt(wish: Wish) {
    lab::run(move || {
        let host = Host::new();
        host.connect("lan", "eth");
        ip("addr add 10.0.0.1/24 dev lan");
        ip("addr add fd00::1/64 dev lan nodad");
        host.run(|| {
            ip("addr add 10.0.0.2/24 dev eth");
            ip("addr add fd00::2/64 dev eth nodad");
        });
        let mut pool = Pool::new(4096, 2048).unwrap();
        let Opened { mut lines, guard, copying, .. } =
            ports::open(&spec("lan", wish), &[pool.memory()]).unwrap();
        let punt = Punt::open("lan", MARK, 1).unwrap();

        let reached = host
            .run(|| std::process::Command::new("ping").args(["-c1", "-W1", "10.0.0.1"]).output().unwrap());
        assert!(!reached.status.success(), "Linux answered what nobody delivered to it");

        let stop = Arc::new(AtomicBool::new(false));
        let worker = {
            let stop = stop.clone();
            let mut punted = punt.lines;
            thread::spawn(move || {
                shuttle(&mut *lines[0], &mut punted[0], &mut pool, &stop);
                (lines[0].statistics(), punted[0].statistics())
            })
        };
        host.run(|| command("ping", "-c3 -i0.2 -W2 10.0.0.1"));
        host.run(|| command("ping", "-c3 -i0.2 -W2 fd00::1"));
        command("ping", "-c3 -i0.2 -W2 10.0.0.2");
        stop.store(true, Ordering::Relaxed);
        let (port, punt) = worker.join().unwrap();
        println!("{copying:?}\n{port:?}\n{punt:?}");
        drop(guard);
    });
}

//! Any bytes as the output of iptables-save.
#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::import::IpVersion;

fuzz_target!(|data: &[u8]| wirerate_fuzz::imports("iptables", data, &[IpVersion::V4, IpVersion::V6]));

//! Any bytes as a ClassBench filter set.
#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::import::IpVersion;

fuzz_target!(|data: &[u8]| wirerate_fuzz::imports("classbench", data, &[IpVersion::V4, IpVersion::V6]));

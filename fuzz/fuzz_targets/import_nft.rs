//! Any bytes as the output of nft -j list ruleset.
#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::import::IpVersion;

fuzz_target!(|data: &[u8]| wirerate_fuzz::imports("nft", data, &[IpVersion::V4, IpVersion::V6]));

//! Compiles `src/glue.c` and links the library, with the feature `linked` alone.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=src/glue.c");
    if env::var_os("CARGO_FEATURE_LINKED").is_none() {
        return;
    }
    // The compiler's own message says which file is missing: intel-ipsec-mb.h, of Debian's libipsec-mb-dev.
    cc::Build::new().file("src/glue.c").opt_level(2).warnings_into_errors(true).compile("wirerate_glue");
    println!("cargo:rustc-link-lib=IPSec_MB");
}

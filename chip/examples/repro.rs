#![allow(missing_docs, clippy::unwrap_used)]
fn main() {
    let want: Vec<String> = std::env::args().skip(1).collect();
    let claims: Vec<_> = chip::reproduce::claims()
        .into_iter()
        .filter(|c| want.is_empty() || want.iter().any(|w| w == c.id))
        .collect();
    let t = std::time::Instant::now();
    for o in chip::reproduce::reproduce(&claims, &|_| ()).unwrap() {
        println!(
            "{:4} {:70} | {:>10} | {:>30} {:9} {:>7} {:?} {}",
            o.id,
            o.statement,
            o.published,
            o.predicted,
            o.unit,
            o.error.map_or(String::new(), |e| format!("{:+.1}%", e * 100.0)),
            o.verdict,
            if o.blind { "" } else { "(not blind)" }
        );
    }
    println!("{:.1} s", t.elapsed().as_secs_f64());
}

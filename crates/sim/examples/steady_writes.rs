//! What steady random writes wait for while the cleaner works: one line, for `make bench`. `steady_writes 64` has 64 under way,
//! `steady_writes 1` one.

fn main() -> Result<(), String> {
    let is_deep = match std::env::args().nth(1).as_deref() {
        Some("64") => true,
        Some("1") => false,
        _ => return Err("usage: steady_writes 64|1".to_owned()),
    };
    let met = diecut_sim::repro::steady_writes(1, is_deep)?;
    let times = met.p999_us / met.little_us;
    println!("p99.9: {:.0} us, p50 {:.0}, p99 {:.0}", met.p999_us, met.p50_us, met.p99_us);
    println!(
        "p99.9 over the mean by Little's law: {times:.2} with p50 {:.0} us, p99 {:.0}, p99.9 {:.0}",
        met.p50_us, met.p99_us, met.p999_us
    );
    Ok(())
}

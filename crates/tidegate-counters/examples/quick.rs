//! x
use std::time::Instant;
use tidegate_core::*;
use tidegate_counters::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: u64 = a[1].parse().unwrap();
    let bsz: usize = a[2].parse().unwrap();
    let alg = &a[3];
    let count: u64 = a[4].parse().unwrap();
    let per: usize = a[5].parse().unwrap();
    let t0 = Micros::from_secs(1_800_000_000);
    let m = Memory::new(
        MemorySize {
            slots: (n as usize * 16 * 16 / 10).next_power_of_two(),
            arena: if alg == "sw" { n as usize * 80 } else { 4096 * 16 },
        },
        t0,
    )
    .unwrap();
    let limits: Vec<Limit> = (0..8)
        .map(|i| {
            match alg.as_str() {
                "gcra" => Limit::gcra(100 + 100 * i, Micros::from_secs(60), None),
                "fixed" => Limit::fixed_window(100 + i, Micros::from_secs(60)),
                _ => Limit::sliding_window(100 + i, Micros::from_secs(60)),
            }
            .unwrap()
        })
        .collect();
    let s = Secret::new([1; 16]).start().part(b"rule");
    let key = |i: u64| {
        let mut b = [0u8; 24];
        let mut p = 24;
        let mut x = i;
        loop {
            p -= 1;
            b[p] = b'0' + (x % 10) as u8;
            x /= 10;
            if x == 0 {
                break;
            }
        }
        p -= 5;
        b[p..p + 5].copy_from_slice(b"user:");
        s.part(&b[p..]).key()
    };
    let mut batch = Batch::new();
    let mut run = |ix: &mut dyn FnMut() -> u64, count: u64, now: Micros, m: &Memory, per: usize| {
        let t = Instant::now();
        let mut ok = 0;
        for _ in 0..count / (bsz * per) as u64 {
            batch.clear();
            for _ in 0..bsz {
                batch.push((0..per).map(|_| {
                    let i = ix();
                    Take {
                        key: key(i),
                        limit: &limits[(i % 8) as usize],
                        ask: Ask::Charge { cost: 1 },
                        role: Role::Enforce,
                    }
                }));
            }
            m.take_now(&mut batch, now);
            for r in 0..bsz {
                ok += batch.admitted(r) as u64;
                std::hint::black_box(&batch.answers(r)[0]);
            }
        }
        let e = t.elapsed();
        println!("{:.1} ns/take  ok {}", e.as_nanos() as f64 / count as f64, ok);
    };
    let mut i = 0;
    run(
        &mut || {
            i += 1;
            i - 1
        },
        n / bsz as u64 * bsz as u64,
        t0,
        &m,
        1,
    );
    println!("{:?} live evicted {:.5}%", m.stats(), m.stats().evicted_live as f64 * 100. / n as f64);
    for k in 0..3 {
        let mut x = 88172645463325252u64 + k;
        run(
            &mut || {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x % n
            },
            count,
            t0.plus(Micros::from_millis(k * 10 + 1)),
            &m,
            per,
        );
    }
    if a.len() > 6 {
        let t = Instant::now();
        let mut z = 0u128;
        for i in 0..10_000_000u64 {
            z ^= key(i).bits();
        }
        println!("hash only {:.1} ns {z}", t.elapsed().as_nanos() as f64 / 1e7);
    }
}

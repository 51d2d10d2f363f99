//! Prints what a manifest says: `cargo run -p sluice-source --example read FILE`.

fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).expect("readable file");
        let parsed = sluice_source::manifest::facts_from_str(&file, &text, &mut Default::default());
        for fact in &parsed.facts {
            println!("{fact:?}");
        }
        for p in &parsed.problems {
            println!("{p}");
        }
        println!("{:?}", parsed.outcome);
    }
}

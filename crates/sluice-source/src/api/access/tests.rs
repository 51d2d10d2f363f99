use super::*;

#[test]
fn proxy_users_are_encoded_as_headers_want_them() {
    assert_eq!(unescape("us%40er:p%C3%A9%"), "us@er:pé%".as_bytes());
    let cases = [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
    ];
    for (plain, encoded) in cases {
        assert_eq!(base64(plain.as_bytes()), encoded);
    }
}

#[test]
fn a_server_is_a_url_with_a_host() {
    for good in [
        "https://192.0.2.1:6443",
        "http://[2001:db8::1]:8080/prefix",
        "192.0.2.1:8080",
    ] {
        assert!(server_url(good).is_ok(), "{good}");
    }
    for wrong in ["", "ftp://192.0.2.1", "https://", "not a url"] {
        assert!(server_url(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_broken_kubeconfig_is_located_and_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let broken = "users:\n- name: a\n  user: {token: hunter2}\n  - broken: [hunter2\n";
    std::fs::write(&path, broken).unwrap();
    let made = make(&Access::Kubeconfig { path, server: None });
    let text = made.err().unwrap().to_string();
    assert!(text.contains("cannot be read at line"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn what_a_server_says_stays_on_one_line() {
    let long = format!("a\nb\u{1b}[31m{}", "x".repeat(1000));
    let shown = tidy(&long);
    assert!(shown.starts_with("a b [31mxx"));
    assert_eq!(shown.chars().count(), 300);
}

#[test]
fn a_replaced_file_is_noticed_by_more_than_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "one").unwrap();
    let stamp = Stamp::now(path.clone());
    assert!(!stamp.is_stale());
    let other = folder.path().join("other");
    std::fs::write(&other, "two").unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert!(stamp.is_stale());
    std::fs::remove_file(&path).unwrap();
    assert!(stamp.is_stale());
}

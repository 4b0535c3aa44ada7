package io.jccl.cli.shell;

import java.util.regex.Pattern;

/** What no report may show. */
public final class Secrets {
    private static final String HIDDEN = "(hidden)";

    private static final Pattern NAMES =
            Pattern.compile("TOKEN|SECRET|PASS|KEY|CREDENTIAL|JWT", Pattern.CASE_INSENSITIVE);

    /** User name and password in an address. */
    private static final Pattern USER_INFO = Pattern.compile("(?<=://)[^/@\\s]+(?=@)");

    private Secrets() {}

    /**
     * The value of a variable as reports show it.
     *
     * @param name its name, which may mean that it is a secret
     * @param value its value
     * @return the value without what may be a secret
     */
    public static String hidden(String name, String value) {
        return NAMES.matcher(name).find() ? HIDDEN : USER_INFO.matcher(value).replaceAll(HIDDEN);
    }
}

// Command show is a program for the tests to release: its help is cobra's, and says all that a manual page has a place
// for.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

const long = `show shows what there is. It changes nothing:
.not a request, and no 'quotes' or \backslashes.

It goes on -- as before.

Exit codes:
  0  done
  1  not`

func main() {
	root := &cobra.Command{
		Use: "show", Short: "Show what there is", Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringP("output", "o", "table", "output format: table or json,\nin one of two lines")
	root.PersistentFlags().String("zone", os.Getenv("HOME"), "where")
	list := &cobra.Command{Use: "list NAME", Short: "List names", Example: "  show list a\n    show list b", Run: func(*cobra.Command, []string) {}}
	list.Flags().Bool("all", false, "with those that are hidden")
	deep := &cobra.Command{Use: "deep", Short: "Be below another", Run: func(*cobra.Command, []string) { fmt.Println("here") }}
	list.AddCommand(deep)
	root.AddCommand(list)
	if root.Execute() != nil {
		os.Exit(1)
	}
}

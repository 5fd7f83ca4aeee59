// Command empty does nothing.
package main

func main() {}
